"""The parts of a report that `metronome predict` fills; results/run_report.py hands them on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from metronome_cli.results.part import Natural, ReportPart


class Interval(ReportPart):
    """An estimate and the interval about it."""

    estimate: float | None
    """Best single value; null: there is none."""
    low: float | None
    """Lower end."""
    high: float | None
    """Upper end; null: no bound."""


class HazardForecast(ReportPart):
    """One thing that can end the run, by itself."""

    name: str
    """`pool`, `context`, or `stage NAME` (its pool) and `stage NAME limit`."""
    mean_growth_time_s: float | None = None
    """Where the mean growth puts it, in seconds; null: never."""
    fill_time_s: Interval
    """When it comes, in seconds."""
    collapse_probability: float
    """Probability that it comes within the session length."""
    blocks: Natural | None = None
    """Blocks of the pool; null for a limit."""
    steady_occupancy: float | None = None
    """Occupancy once every window is full; null: it grows without end."""


class MemoryLine(ReportPart):
    """One line of the way from a device's memory to the KV pool."""

    what: str
    """What takes the memory, or the memory itself, or the pool."""
    bytes: int
    """Bytes; negative where they are taken."""
    how: str
    """How the figure was found."""


class ImpliedPool(ReportPart):
    """What a collapse observed elsewhere implies if pool size or rate is unknown."""

    fill_time_s: float
    """When the pool was full there, in seconds."""
    sessions: Natural
    """Of how many sessions."""
    pool_tokens: Natural | None = None
    """Pool, in positions, that explains it at this profile's rate."""
    pool_bytes: Natural | None = None
    """The same in bytes."""
    positions_per_s: float | None = None
    """Positions a second and session that explain it in this profile's pool; null: it has none."""


class CacheGroupPart(ReportPart):
    """Layers of one session's cache that follow one law."""

    name: str
    """What keeps it."""
    law: Literal["growing", "latent", "chunked", "windowed", "ring", "state", "shared"]
    """How it grows with the positions of a session."""
    layers: Natural
    """Layers in the group."""
    bytes_per_position: Natural
    """Bytes of one position in all of them; 0 for a state and for shared layers."""
    limit: Natural | None = None
    """Positions of its window, chunk or ring; null: no bound."""
    constant_bytes: Natural | None = None
    """Bytes when its window or ring is full, or of its state; null: it grows, or the size is unknown."""
    dtype: str
    """Number type of the cache."""
    own_positions: bool = False
    """It counts positions of its own, not the decoder's."""


class CacheForecast(ReportPart):
    """What one session keeps between frames."""

    growing_bytes_per_token: Natural
    """Bytes that a new position adds; if every group is bounded, until `grows_until`."""
    grows_until: Natural | None
    """Positions after which nothing grows; null: no bound."""
    constant_bytes_per_session: Natural | None
    """Bytes of windows and rings when full, and of states; null: the size of a state is unknown."""
    groups: list[CacheGroupPart] = Field(default_factory=list)
    """The groups."""


class Forecast(ReportPart):
    """The answer of `metronome predict`."""

    source: Literal["profile", "config", "trace", "scrape"] = "profile"
    """What it was read from."""
    sessions: Natural | None = None
    """Sessions asked for; null for a trace or a server."""
    session_length_s: float | None = None
    """How long each of them lasts, in seconds."""
    fill_time_s: Interval
    """When the run ends by itself (a full pool, or an earlier limit), in seconds; a null estimate: it never
    does.
    """
    collapse_probability: float | None
    """Probability that this happens before the sessions end."""
    first_hazard: str = "none"
    """What is at `fill_time_s`, be that after the session length; `none` where nothing ever is."""
    limited_by: str
    """What stops the load within the session length; `none` where that is less likely than `confidence` allows. Of a
    trace or a server: what stops it at `fill_time_s`.
    """
    max_sessions: Natural | None
    """Most sessions that live through the session length, with `confidence`."""
    max_sessions_limited_by: str = "none"
    """What stops one session more."""
    fitting_window_tokens: Natural | None
    """Largest window, in tokens, at which the asked number of sessions fits."""
    confidence: float | None = None
    """Confidence of `max_sessions`."""
    hazards: list[HazardForecast] = Field(default_factory=list)
    """Everything that can end the run, each by itself."""
    cache: CacheForecast | None = None
    """What one session keeps; null for a trace or a server."""
    context_length: Natural | None = None
    """Context length of the model in positions; null: not in its files."""
    rope_theta: float | None = None
    """Base of the rotary positions; null: not in its files."""
    memory: list[MemoryLine] = Field(default_factory=list)
    """How the pool was sized, where memory was given."""
    implied_pool: ImpliedPool | None = None
    """What a collapse observed elsewhere implies."""
    fills: bool | None = None
    """Whether a trace or server is on its way to a full pool; null: too little is known."""
    reason: str = ""
    """The reason, as text."""
    occupancy: float | None = None
    """Occupancy at the last sample used."""
    fill_rate_per_s: float | None = None
    """Share of the pool that fills a second."""
    fill_rate_falling: bool = False
    """The fill slows down: frames are served later than they come, or sessions leave."""
    served_share: float | None = None
    """Frames served of those offered in the fitted part; null: not recorded."""
    remaining_s: float | None = None
    """From the last sample to a full pool, in seconds."""
    observed_fill_time_s: float | None = None
    """When the trace itself reached a full pool, in seconds."""
    fitted_until_s: float | None = None
    """End of the fitted part, in the trace's own time."""
    collapsed: bool = False
    """The pool is full and no token comes."""
    sample_notes: list[str] = Field(default_factory=list)
    """What was missing, left out or odd about the samples."""
    assumptions: list[str] = Field(default_factory=list)
    """What the forecast takes for granted."""
    details: dict[str, Any] = Field(default_factory=dict)
    """Figures behind it."""


class GpuEstimate(ReportPart):
    """What one card is estimated to hold. Never a measurement."""

    gpu: str
    """Key of the card."""
    title: str
    """Its name."""
    memory_bytes: Natural
    """Its memory."""
    memory_sessions: Natural | None
    """Sessions that its memory holds for the session length; null: no bound."""
    deadline_sessions: Interval
    """Sessions whose step keeps the deadline."""
    sessions: Interval
    """The smaller of both."""
    limited_by: str
    """`memory`, `deadline` or `none`."""
    step_ms: dict[str, float] = Field(default_factory=dict)
    """Estimated step time in milliseconds, by number of sessions."""
    spread: float
    """The truth may be off by this factor either way."""
    how: str
    """Where the efficiency comes from."""
    notes: list[str] = Field(default_factory=list)
    """Doubts about the card's figures."""


class FleetSize(ReportPart):
    """A fleet of one size. Shares are 0 to 1."""

    gpus: Natural
    """GPUs."""
    slots: Natural
    """Sessions that they hold, less the headroom."""
    utilisation: float
    """Mean share of the slots in use."""
    blocking: float
    """Share of sessions rejected if the router finds any free slot."""
    random_routing_blocking: float
    """Share of sessions rejected if the router picks a GPU at random."""
    node_down_blocking: float
    """The same as `blocking` with one node down."""
    sessions_lost_with_node: float
    """Mean number of sessions that end when a node fails."""
    readmitted_share: float
    """Share of those that find a free slot on another node at once."""


class FleetPlan(ReportPart):
    """The answer of `metronome predict fleet`."""

    offered_erlangs: float | None
    """Arrivals per second times the mean session length, s; null if a peak was given."""
    peak_sessions: Natural | None = None
    """The peak that was given."""
    sessions_per_gpu: Natural
    """Before the headroom."""
    sessions_per_gpu_source: str
    """Where that figure comes from."""
    headroom: float
    """Share of each GPU's slots that is kept free."""
    gpus_per_node: Natural
    """GPUs that fail together."""
    max_blocking: float
    """Largest allowed share of sessions rejected."""
    gpus_needed: Natural
    """Fewest GPUs that keep it."""
    gpus_with_spare_node: Natural
    """Fewest GPUs, in whole nodes, that keep it with one node down."""
    sizes: list[FleetSize] = Field(default_factory=list)
    """Fleets about that size."""
