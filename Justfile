# `just` lists what there is to do.

python := ".venv/bin/python"

_default:
    @just --list --unsorted

# Make the environment: .venv with everything a developer needs
setup:
    test -x {{ python }} || python3 -m venv .venv
    {{ python }} -m pip install -q -e '.[dev]'

# Lint, format, types and import layers, without changing anything
check:
    {{ python }} -m ruff check .
    {{ python }} -m ruff format --check .
    {{ python }} -m mypy
    .venv/bin/lint-imports

# Put code in order
format:
    {{ python }} -m ruff check --fix .
    {{ python }} -m ruff format .

# The tests, or some of them: just test tests/config -k objective
test *arguments:
    {{ python }} -m pytest {{ arguments }}

# What continuous integration runs
ci:
    .ci/run

# Make every generated file again: settings, commands, the report's page and schema
generate:
    {{ python }} -m metronome_cli.config.settings_docs
    {{ python }} -m metronome_cli.cli.commands_docs
    {{ python }} -m metronome_cli.results.schema

# Wheel and source distribution, in dist/
build:
    {{ python }} -m pip install -q build
    {{ python }} -m build

# How long the command line takes to answer
startup:
    {{ python }} benchmarks/startup.py
