"""vLLM's asynchronous engine.

`Streams` is what a driver needs of it; `VllmEngine` is vLLM itself, which lives in the event loop that started it. What
vLLM logs goes to a file, since standard output is the report's; the reason of a failure is the first exception there.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from metronome_cli.backends.vllm.log import EngineLog
from metronome_cli.backends.vllm.pool_gauge import PoolGauge
from metronome_cli.core.errors import DeviceMemoryError, EngineError

LOG_CONFIGURATION = "VLLM_LOGGING_CONFIG_PATH"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Token ids that join a session's cache, and how many are asked for in return, one at the least."""

    tokens: Sequence[int]
    out: int


@dataclass(frozen=True, slots=True)
class TokensReceived:
    """Token ids that came; `done`: those of the chunk are complete."""

    tokens: Sequence[int]
    done: bool


class StreamingEngine(Protocol):
    """An engine of resumable requests. Chunks of one request follow each other: the next one after `done`."""

    gauge: PoolGauge
    vocab: int
    context: int  # positions; a request that passes it may take the engine with it
    seats: int

    async def start(self) -> None:
        """Load the model and make the pool; the attributes above hold from then on. Raises EngineError."""

    def give_up(self) -> None:
        """End a start that is under way, from another thread: `start` raises EngineError soon."""

    def talk(self, name: str, chunks: AsyncIterator[Chunk]) -> AsyncGenerator[TokensReceived, None]:
        """Open a request. Raises EngineError when the engine dies; closing the generator ends the request."""

    async def stop(self) -> None:
        """End the engine and its processes. A second time does nothing."""

    def describe(self) -> dict[str, Any]:
        """What ran, for a report."""


class VllmEngine:
    """Implements `Streams`."""

    def __init__(self, arguments: Mapping[str, Any], gauge: PoolGauge, log: EngineLog) -> None:
        self.gauge = gauge
        self.arguments = dict(arguments)
        self.vocab = self.context = self.seats = 0
        self._log = log
        self._llm: Any = None

    async def start(self) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._log.mark()
        try:  # the loop stands still meanwhile, and nobody else is in it yet
            self._llm = AsyncLLM.from_engine_args(
                AsyncEngineArgs(**self.arguments), stat_loggers=[statistics_for(self.gauge)]
            )
        except Exception as error:  # whatever vLLM and the model's code raise
            raise _failure("vLLM did not start", self._log.reason(error)) from error
        self._read(self._llm.vllm_config)

    def give_up(self) -> None:
        for process in multiprocessing.active_children():  # all of them are vLLM's
            process.terminate()

    def _read(self, config: Any) -> None:
        engines = config.parallel_config.data_parallel_size
        self.vocab = int(config.model_config.get_vocab_size())
        self.context = int(config.model_config.max_model_len)
        self.seats = int(config.scheduler_config.max_num_seqs) * engines
        self.gauge.begin((config.cache_config.num_gpu_blocks or 0) - engines, engines)

    def talk(self, name: str, chunks: AsyncIterator[Chunk]) -> AsyncGenerator[TokensReceived, None]:
        return self._talk(name, chunks)

    async def _talk(self, name: str, chunks: AsyncIterator[Chunk]) -> AsyncGenerator[TokensReceived, None]:
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        outputs = self._llm.generate(_inputs(chunks), sampling(1), name)
        try:
            async for output in outputs:
                part = output.outputs[0]
                yield TokensReceived(part.token_ids, part.finish_reason in ("length", "stop"))
        except (EngineDeadError, EngineGenerateError) as error:
            await asyncio.sleep(0.2)  # its processes are still writing what happened
            raise _failure("vLLM's engine died", self._log.reason(error)) from error
        finally:
            await outputs.aclose()

    async def stop(self) -> None:
        llm, self._llm = self._llm, None
        if llm is not None:
            await asyncio.to_thread(llm.shutdown)

    def describe(self) -> dict[str, Any]:
        import vllm
        from vllm.platforms import current_platform

        return {
            "engine": "vllm",
            "version": vllm.__version__,
            "device": current_platform.device_type,
            "arguments": {key: plain(value) for key, value in self.arguments.items()},
        }


def _failure(what: str, reason: str) -> EngineError:
    kind = DeviceMemoryError if "out of memory" in reason.lower() else EngineError
    return kind(f"{what}: {reason}")


def plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def sampling(out: int) -> Any:
    """Exactly `out` tokens, the likeliest ones, as they come."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        max_tokens=out,
        min_tokens=out,
        ignore_eos=True,
        temperature=0.0,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


async def _inputs(chunks: AsyncIterator[Chunk]) -> AsyncGenerator[Any, None]:
    from vllm.engine.protocol import StreamingInput

    async for chunk in chunks:
        yield StreamingInput({"prompt_token_ids": list(chunk.tokens)}, sampling(max(1, chunk.out)))


def statistics_for(gauge: PoolGauge) -> Any:
    """vLLM's factory of loggers, one for each engine, which hand a scheduler's statistics to the gauge."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Statistics(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            self._engine = engine_index

        def record(
            self,
            scheduler_stats: Any,
            iteration_stats: Any,
            mm_cache_stats: Any = None,
            engine_idx: int = 0,
        ) -> None:
            if iteration_stats is not None:
                gauge.preempted(iteration_stats.num_preempted_reqs)
            if scheduler_stats is not None:
                gauge.take(
                    engine_idx,
                    scheduler_stats.kv_cache_usage,
                    scheduler_stats.num_running_reqs,
                    scheduler_stats.num_waiting_reqs,
                )

        def log_engine_initialized(self) -> None:
            """Nothing to say."""

    return Statistics


def known_arguments() -> set[str]:
    """What vLLM's engine takes."""
    from dataclasses import fields

    from vllm.engine.arg_utils import AsyncEngineArgs

    return {field.name for field in fields(AsyncEngineArgs) if field.init}


def block_multiple() -> int:
    """What a block's positions must be a multiple of: 32 for attention on a processor, nothing special elsewhere."""
    from vllm.platforms import current_platform

    return 32 if current_platform.is_cpu() else 1


def prepare(log: EngineLog, environ: Any = os.environ) -> None:
    """Before an engine is made: vLLM's log to our file, unless the user has said where; nothing is fetched or told."""
    if not environ.get(LOG_CONFIGURATION) or EngineLog.is_ours(environ[LOG_CONFIGURATION]):
        environ[LOG_CONFIGURATION] = str(log.configuration)
        log.take_over()
    environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    environ.setdefault("TQDM_DISABLE", "1")
    environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is fetched here
