"""Figures of ``device.sh``: ``fit`` of torch modules beside a loop by hand in the same run, copies, and memory."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from dask import array as da
from torch import nn

import dask_train as dt

NUM_EPOCHS = 4  # the first warms up
Figures = dict[str, float | str]


class Checks:
    """The figures, in the order in which they are taken."""

    def __init__(self, client: Any, *, rehearses: bool, broken: bool) -> None:  # noqa: ARG002 - as of all parts
        self.client, self.rehearses = client, rehearses
        self.device, self.gpus = ("cpu", 0) if rehearses else ("cuda", 1)
        self.random = np.random.default_rng(0)

    def small_mlp(self) -> Figures:
        rows = 8192 if self.rehearses else 262_144
        x, y = self.random.normal(size=(rows, 128)).astype("f4"), self.random.integers(0, 10, rows)
        return self._beside_a_loop(mlp(), x, y, nn.CrossEntropyLoss(), 1024)

    def second_fit(self) -> Figures:
        x, y = self.random.normal(size=(8192, 128)).astype("f4"), self.random.integers(0, 10, 8192)
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            self._fit(mlp(), x, y, nn.CrossEntropyLoss(), 1024, epochs=1)
            seconds.append(time.perf_counter() - began)
        return {"first_s": round(seconds[0], 2), "second_s": round(seconds[1], 2)}

    def copies(self) -> Figures:
        """Gigabytes a second of rows to the device, in a module that does little with them."""
        rows, columns, size = (8192, 512, 1024) if self.rehearses else (131_072, 4096, 4096)
        x, y = self.random.normal(size=(rows, columns)).astype("f4"), np.zeros((rows, 1), "f4")
        paged = torch.empty(size, columns)
        pinned = paged if self.rehearses else paged.pin_memory()
        figures = self._beside_a_loop(nn.Linear(columns, 1), x, y, nn.MSELoss(), size)
        gigabytes = x.nbytes / 1e9
        return {
            "fit_gb_s": round(gigabytes / float(figures["fit_epoch_s"]), 2),
            "by_hand_gb_s": round(gigabytes / float(figures["by_hand_epoch_s"]), 2),
            "card_pinned_gb_s": self._copy_speed(pinned),
            "card_paged_gb_s": self._copy_speed(paged),
        }

    def convolutions_in_bf16(self) -> Figures:
        rows, side = (128, 16) if self.rehearses else (8192, 64)
        x, y = self.random.normal(size=(rows, 3, side, side)).astype("f4"), self.random.integers(0, 10, rows)
        return self._beside_a_loop(InBf16(convolutions(16 if self.rehearses else 128)), x, y, nn.CrossEntropyLoss(), 64)

    def transformer_in_bf16_compiled(self) -> Figures:
        sizes = {"layers": 2, "width": 64, "words": 512, "length": 32} if self.rehearses else {}
        model = Transformer(**sizes)
        rows, size = (32, 8) if self.rehearses else (192, 16)
        texts = self.random.integers(0, model.words, (rows, model.length + 1))
        x, y = texts[:, :-1], np.ascontiguousarray(texts[:, 1:])
        figures = self._beside_a_loop(model, x, y, loss_of_words, size)
        words = rows * model.length
        return {
            **figures,
            "parameters": sum(one.numel() for one in model.parameters()),
            "fit_words_s": round(words / float(figures["fit_epoch_s"])),
            "by_hand_words_s": round(words / float(figures["by_hand_epoch_s"])),
        }

    def memory_of_the_host(self) -> Figures:
        """Memory of one role (PSS) before it has read rows and after, beside the size of the rows."""
        x = self.random.normal(size=(8192 if self.rehearses else 262_144, 1024)).astype("f4")
        found = dt.train(
            partial(memory_before_and_after, device=self.device),
            roles={"worker": 1},
            data=da.from_array(x, chunks=(len(x) // 8, 1024)),
            framework="torch",
            gpus=self.gpus,
        ).results["worker"][0]
        return {"rows_mb": x.nbytes >> 20, **found}

    def _beside_a_loop(
        self, module: nn.Module, x: np.ndarray, y: np.ndarray, loss: Callable[..., Any], size: int
    ) -> Figures:
        """Seconds of an epoch by hand and of ``fit``, their ratio, and the last losses, which have to be near."""
        mine = copy.deepcopy(module).to(self.device)
        by_hand_s, by_hand_loss = self._by_hand(mine, x, y, loss, size)
        del mine
        if not self.rehearses:
            torch.cuda.empty_cache()  # the role has to have room
        result = self._fit(module, x, y, loss, size, epochs=NUM_EPOCHS)
        ends = [told["time"] for told in result.scores if "step" not in told]
        fit_s, fit_loss = median(np.diff(ends)), result.history["loss"][-1]
        assert abs(fit_loss - by_hand_loss) <= 0.02 * abs(by_hand_loss), (fit_loss, by_hand_loss)
        return {
            "by_hand_epoch_s": round(by_hand_s, 4),
            "fit_epoch_s": round(float(fit_s), 4),
            "fit_over_by_hand": round(float(fit_s) / by_hand_s, 2),
            "by_hand_loss": round(by_hand_loss, 4),
            "fit_loss": round(fit_loss, 4),
        }

    def _by_hand(
        self, module: nn.Module, x: np.ndarray, y: np.ndarray, loss: Callable[..., Any], size: int
    ) -> tuple[float, float]:
        """Train as one would write it, with pinned rows; the seconds of an epoch, and the last one's mean loss."""
        columns = [torch.from_numpy(each) for each in (x, y)]
        columns = columns if self.rehearses else [each.pin_memory() for each in columns]
        optimizer, seconds, mean = torch.optim.SGD(module.parameters(), lr=0.01), [], 0.0
        for _ in range(NUM_EPOCHS):
            began, total = time.perf_counter(), torch.zeros((), device=self.device)
            for start in range(0, len(x), size):
                rows, targets = (each[start : start + size].to(self.device, non_blocking=True) for each in columns)
                optimizer.zero_grad()
                value = loss(module(rows), targets)
                value.backward()
                optimizer.step()
                total += value.detach().float()
            mean = float(total) * size / len(x)  # waits for the device
            seconds.append(time.perf_counter() - began)
        return median(seconds[1:]), mean

    def _fit(self, module: nn.Module, x: Any, y: Any, loss: Callable[..., Any], size: int, *, epochs: int) -> Any:
        chunk = max(1, len(x) // 8)
        parts = [da.from_array(each, chunks=(chunk, *each.shape[1:])) for each in (x, y)]
        settings: dict[str, Any] = {"workers": 1, "shuffle": False, "verbose": 0, "gpus": self.gpus}
        made = partial(torch.optim.SGD, lr=0.01)
        return dt.fit(module, *parts, loss=loss, optimizer=made, batch_size=size, epochs=epochs, **settings)

    def _copy_speed(self, rows: torch.Tensor) -> float:
        """Gigabytes a second from the host's memory to the device."""
        target, seconds = torch.empty_like(rows, device=self.device), []
        for _ in range(8):
            began = time.perf_counter()
            target.copy_(rows)
            if not self.rehearses:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - began)
        return round(rows.nbytes / 1e9 / median(seconds), 2)


def mlp() -> nn.Module:
    """A small network, whose steps are short, so that what is around them counts."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def convolutions(width: int) -> nn.Module:
    """A plain convolutional network; without batch normalisation, whose statistics would take part."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class InBf16(nn.Module):
    """A module that computes in bfloat16, with parameters in float32."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast(rows.device.type, torch.bfloat16):
            return self.module(rows)


class Block(nn.Module):
    """A layer of GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in self.qkv(self.before(x)).chunk(3, 2))
        mixed = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.between(x))


class Transformer(nn.Module):
    """GPT-2 of 124 M parameters; its layers are compiled where it is first called, once for all of them."""

    def __init__(self, *, layers: int = 12, width: int = 768, words: int = 50_257, length: int = 1024) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.length = words, length
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        for embedding in (self.word, self.place):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        with torch.autocast(words.device.type, torch.bfloat16):
            x = self.word(words) + self.place(torch.arange(words.shape[1], device=words.device))
            for block in self.blocks:
                if block._compiled_call_impl is None:
                    block.compile()
                x = block(x)
            return nn.functional.linear(self.last(x), self.word.weight)


def loss_of_words(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over all words."""
    return nn.functional.cross_entropy(outputs.flatten(0, 1).float(), targets.flatten())


def memory_before_and_after(session: Any, device: str) -> Figures:
    """Megabytes of this role (PSS), and those that it shares with nobody, before and after it has read its rows."""

    def megabytes() -> dict[str, int]:
        from pathlib import Path

        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
        found = {line.split(":")[0]: int(line.split()[1]) >> 10 for line in lines}
        return {"pss_mb": found["Pss"], "private_mb": found["Private_Clean"] + found["Private_Dirty"]}

    torch.zeros(1, device=device)
    before, num_pinned = megabytes(), 0
    for batch in session.batches(batch_size=4096, shuffle=False):
        num_pinned += batch.is_pinned() if device == "cuda" else 0
        batch.to(device, non_blocking=True).sum().item()
    after = megabytes()
    told = {
        f"{name}_{when}": value for when, each in (("before", before), ("after", after)) for name, value in each.items()
    }
    return {**told, "pinned_batches": num_pinned}
