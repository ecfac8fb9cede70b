"""`python -m metronome_cli`."""

from metronome_cli.cli.main import main

if __name__ == "__main__":
    main()
