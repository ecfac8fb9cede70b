"""A speech model's directory from the files on: untrained weights are refused, others are measured under load.

No trained checkpoint is small enough to ship, so one is made: a tiny model whose head prefers the words of the
answers, as training would have it do. It knows the words, not what it hears: what is measured here is the path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from metronome_cli.audio.library import sample_paths
from metronome_cli.core.errors import UsageError
from metronome_cli.probe.quality.material import bundled_transcripts
from metronome_cli.probe.quality_options import QualityOptions
from metronome_cli.probe.quality_report import QualityProbePlan, run_quality
from metronome_cli.results.quality_result import QualityResult
from tests.models import omni

END = "<end>"
ASKED = QualityOptions(windows=(64,), sinks=(4,), questions_per_session=3, sessions=3)


def words() -> list[str]:
    """Every word of the answers, which the made model prefers, without doubles."""
    said = " ".join(one.question.answer for one in bundled_transcripts())
    return list(dict.fromkeys(said.split()))[:200]


def checkpoint(folder: Path, *, trained: bool) -> Path:
    """A whole tiny Qwen2.5-Omni and a tokenizer of whole words."""
    model = omni.model("qwen2.5")
    if trained:
        with torch.no_grad():
            model.thinker.get_input_embeddings().weight[:, 0] = 4.0
            model.thinker.lm_head.weight[:, 0] = 0.0
            model.thinker.lm_head.weight[: len(words()) + 2, 0] = 2.0
    omni.save(model, folder)
    vocabulary = {token: number for number, token in enumerate([END, "<unk>", *words()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, unk_token="<unk>")
    fast.save_pretrained(folder)
    return folder


def probe(folder: Path, **pool: Any) -> QualityResult:
    run = QualityProbePlan(
        model=None,
        profile=omni.profile("qwen2.5", kv_pool=pool or {"blocks": 512}),
        weights=folder,
        asked=ASKED,
        positions=("rolling",),
        audio=tuple(sample_paths()),
        device="cpu",
    )
    report = run_quality(run)
    assert report.probe is not None
    assert report.probe.quality is not None
    assert report.weights is not None
    assert "random" not in report.weights
    return report.probe.quality


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("trained"), trained=True)


def test_a_directory_of_random_weights_is_refused_with_the_reason(tmp_path: Path) -> None:
    """Files cannot say whether they were trained; how they predict the answers can."""
    with pytest.raises(UsageError, match="random ones predict every text equally badly"):
        probe(checkpoint(tmp_path, trained=False))


def test_every_variant_answers_the_spoken_questions_under_load(trained: Path) -> None:
    part = probe(trained)
    assert [one.name for one in part.variants] == ["unbounded", "window(64, 0)", "window(64, 4)"]
    for one in part.variants:
        assert one.turns is not None
        assert one.turns.turns == 9
        assert one.turns.reference_loss is not None
        assert one.turns.dropped_frames == 0
        assert one.turns.late_step_share is not None
    assert part.sessions == 3
    assert all(one.turns and one.turns.excess_loss_nats for one in part.variants[1:])


def test_a_pool_too_small_for_the_load_costs_unbounded_its_hearing(trained: Path) -> None:
    """Three sessions on the pool of one: what is not bounded drops frames, what is bounded hears all."""
    unbounded, *bounded = probe(trained, blocks=40).variants
    assert unbounded.turns is not None
    assert unbounded.turns.dropped_frames
    assert all(one.turns is not None and one.turns.dropped_frames == 0 for one in bounded)
