"""A Triton server with two small models: `TRITON_VENV/bin/python triton_models.py HTTP_PORT GRPC_PORT METRICS_PORT`.

`embed` takes rows of 256 numbers and works on them for about 20 ms; `classify` takes rows of 4 and refuses negatives.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

WEIGHTS = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)


@batch
def embed(x: Any) -> list[Any]:
    """Some layers of nothing."""
    y = x
    for _ in range(20):
        y = np.tanh(y @ WEIGHTS / 16)
    time.sleep(0.02)
    return [y]


@batch
def classify(x: Any) -> list[Any]:
    """Doubles, after a while."""
    if (x < 0).any():
        raise RuntimeError("negative input refused")
    time.sleep(0.01)
    return [x * 2]


def main() -> None:
    """Serve until SIGTERM."""
    http, grpc, metrics = map(int, sys.argv[1:4])
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stop.append(number))
    config = TritonConfig(
        http_address="127.0.0.1",
        grpc_address="127.0.0.1",
        metrics_address="127.0.0.1",
        http_port=http,
        grpc_port=grpc,
        metrics_port=metrics,
        allow_metrics=True,
        metrics_interval_ms=1000,
    )
    with Triton(config=config) as server:
        server.bind(
            model_name="embed",
            infer_func=[embed, embed],
            inputs=[Tensor(name="x", dtype=np.float32, shape=(256,))],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(256,))],
            config=ModelConfig(max_batch_size=16, batcher=DynamicBatcher(max_queue_delay_microseconds=2000)),
        )
        server.bind(
            model_name="classify",
            infer_func=classify,
            inputs=[Tensor(name="x", dtype=np.float32, shape=(4,))],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(4,))],
            config=ModelConfig(max_batch_size=8),
        )
        server.run()
        while not stop:
            time.sleep(0.2)


if __name__ == "__main__":
    main()
