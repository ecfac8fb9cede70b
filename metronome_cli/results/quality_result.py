"""The part of a report that `metronome probe quality` fills. Losses in nats a token, ages and sizes in tokens."""

from __future__ import annotations

from pydantic import Field

from metronome_cli.results.part import ReportPart


class EstimateResult(ReportPart):
    """A value and the ends of its interval, each at 95 % one-sided."""

    value: float
    """The estimate."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""


class BreakdownResult(ReportPart):
    """Where a session broke."""

    age: int
    """Tokens that it had seen."""
    how: str
    """In which way."""


class PerplexityByAge(ReportPart):
    """A stretch of the text."""

    age: int
    """Tokens before it."""
    tokens: int
    """Its length."""
    perplexity: float
    """exp of the mean loss in it."""


class FreeRunByAge(ReportPart):
    """A stretch of free decoding."""

    age: int
    """Tokens decoded before it."""
    repetition: float
    """Share of its 4-grams that occurred shortly before."""
    distinct_1: float
    """Different tokens over all."""
    distinct_2: float
    """Different pairs over all."""
    entropy: float
    """Mean entropy of the next token's distribution, in nats."""
    pinned_repetition: float | None = None
    """Share of its 4-grams that stand in what is pinned; null where less than 4 tokens are."""


class AnsweredTurns(ReportPart):
    """Questions with their context in the window."""

    turns: int
    """Questions asked."""
    keywords: EstimateResult | None = None
    """Share of answers that say what they must; Wilson's interval."""
    ended: EstimateResult | None = None
    """Share of answers that ended by themselves."""
    agreement: EstimateResult | None = None
    """F1 of the words with those of the unbounded model's answers."""
    reference_loss: EstimateResult | None = None
    """Mean nats a token of the reference answers."""
    excess_loss_nats: EstimateResult | None = None
    """Nats a token above the unbounded model, same turns, once the window slid."""
    dropped_frames: int | None = None
    """Frames of sound that found no room in the pool; null for text."""
    late_step_share: float | None = None
    """Share of frame steps that took longer than the deadline; null for text."""


class QualityVariant(ReportPart):
    """Measurements of one (W, S)."""

    name: str
    """As the tables name it."""
    policy: str
    """What stays resident."""
    window: int
    """W; 0 where nothing bounds it."""
    sinks: int
    """S."""
    sink_positions: str
    """`rolling` or `absolute`."""
    bytes_per_session: int | None = None
    """Cache of an old session; null where it grows without end."""
    tested_up_to_tokens: int
    """Tokens of the longest session looked at."""
    perplexity: float | None = None
    """Of the whole text, up to the trained context."""
    excess_loss_nats: EstimateResult | None = None
    """Nats a token above the unbounded model, on the tokens that both can be judged on."""
    compared_tokens: int = 0
    """How many tokens those are."""
    by_age: list[PerplexityByAge] = Field(default_factory=list)
    """Perplexity of the text as the session ages."""
    text_breakdown: BreakdownResult | None = None
    """Where the prediction of the text broke."""
    turns: AnsweredTurns | None = None
    """The turn-based regime."""
    free_run: list[FreeRunByAge] = Field(default_factory=list)
    """Free decoding as the session ages."""
    free_run_breakdown: BreakdownResult | None = None
    """Where free decoding broke."""
    sample: str = ""
    """The end of its output."""
    standing: str
    """`baseline`, `equivalent`, `worse`, `breaks_down` or `inconclusive`."""
    why: str = ""
    """What the standing rests on."""


class Recommended(ReportPart):
    """The smallest (W, S) that cannot be distinguished from unbounded."""

    name: str
    """As the tables name it."""
    bytes_per_session: int | None
    """Cache of an old session."""
    tested_up_to_tokens: int
    """Age in tokens up to which it was looked at."""
    compared_up_to_tokens: int = 0
    """Age in tokens up to which it was compared with unbounded; past the trained context that is no measure."""
    why: str
    """What that rests on."""


class QualityResult(ReportPart):
    """The answer of `probe quality`."""

    model: str
    """Whose quality."""
    text: str | None = None
    """What was read."""
    text_tokens: int = 0
    """How much of it."""
    text_sessions: int = 1
    """Sessions that read it, each a part of its own."""
    questions: int = 0
    """Questions in the set."""
    sessions: int = 1
    """Sessions side by side in the turn-based regime."""
    context: int
    """Positions that the model was trained for."""
    age_bucket_tokens: int
    """Tokens of a stretch of text."""
    margin: float
    """Nats a token above the unbounded model that count as nothing."""
    variants: list[QualityVariant] = Field(default_factory=list)
    """The unbounded model first."""
    recommended: Recommended | None = None
    """Null where none was shown to be as good."""
