"""vLLM's asynchronous engine.

`StreamingEngine` is its interface for sessions; `VllmEngine` is vLLM itself, in the event loop that started it. vLLM's
log goes to a file, because standard output is for the report; the cause of a failure is the first exception there.
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
    """Token ids to append to a session's cache, and the number of output tokens requested, at least 1."""

    tokens: Sequence[int]
    out: int


@dataclass(frozen=True, slots=True)
class TokensReceived:
    """Output token ids; `done`: the chunk's output is complete."""

    tokens: Sequence[int]
    done: bool


class StreamingEngine(Protocol):
    """An engine with resumable requests. The next chunk of a request follows after `done`."""

    gauge: PoolGauge
    vocab: int
    context: int  # positions; a longer request may crash the engine
    slots: int

    async def start(self) -> None:
        """Load the model and allocate the pool. Sets the attributes above. Raises EngineError."""

    def give_up(self) -> None:
        """Cancel a running `start` from another thread; it then raises EngineError."""

    def talk(self, name: str, chunks: AsyncIterator[Chunk]) -> AsyncGenerator[TokensReceived, None]:
        """Open a request. Raises EngineError if the engine fails; closing the generator ends the request."""

    async def stop(self) -> None:
        """End the engine and its processes. A second call does nothing."""

    def describe(self) -> dict[str, Any]:
        """Describe the engine for a report."""


class VllmEngine:
    """Implements `StreamingEngine` with vLLM."""

    def __init__(self, arguments: Mapping[str, Any], gauge: PoolGauge, log: EngineLog) -> None:
        self.gauge = gauge
        self.arguments = dict(arguments)
        self.vocab = self.context = self.slots = 0
        self._log = log
        self._llm: Any = None

    async def start(self) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._log.mark()
        try:  # blocks the event loop, in which nothing else runs yet
            self._llm = AsyncLLM.from_engine_args(
                AsyncEngineArgs(**self.arguments), stat_loggers=[statistics_for(self.gauge)]
            )
        except Exception as error:  # vLLM and model code may raise anything
            raise _failure("vLLM did not start", self._log.reason(error)) from error
        self._read(self._llm.vllm_config)

    def give_up(self) -> None:
        for process in multiprocessing.active_children():  # only vLLM starts processes here
            process.terminate()

    def _read(self, config: Any) -> None:
        engines = config.parallel_config.data_parallel_size
        self.vocab = int(config.model_config.get_vocab_size())
        self.context = int(config.model_config.max_model_len)
        self.slots = int(config.scheduler_config.max_num_seqs) * engines
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
            await asyncio.sleep(0.2)  # its processes are still writing the cause to the log
            raise _failure("vLLM's engine stopped", self._log.reason(error)) from error
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
    """Return the value as JSON types."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def sampling(out: int) -> Any:
    """Return sampling parameters for exactly `out` tokens, greedy, streamed as deltas."""
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
    """Return vLLM's factory of loggers, one per engine, which pass a scheduler's statistics to the gauge."""
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
            """Log nothing."""

    return Statistics


def known_arguments() -> set[str]:
    """Return the argument names that vLLM's engine accepts."""
    from dataclasses import fields

    from vllm.engine.arg_utils import AsyncEngineArgs

    return {field.name for field in fields(AsyncEngineArgs) if field.init}


def block_multiple() -> int:
    """Return the number that a block's positions must be a multiple of: 32 on a CPU, 1 elsewhere."""
    from vllm.platforms import current_platform

    return 32 if current_platform.is_cpu() else 1


def prepare(log: EngineLog, environ: Any = os.environ) -> None:
    """Set vLLM's environment before an engine is created: log file, no downloads, no usage statistics."""
    if not environ.get(LOG_CONFIGURATION) or EngineLog.is_ours(environ[LOG_CONFIGURATION]):
        environ[LOG_CONFIGURATION] = str(log.configuration)
        log.take_over()
    environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    environ.setdefault("TQDM_DISABLE", "1")
    environ.setdefault("HF_HUB_OFFLINE", "1")  # no downloads
