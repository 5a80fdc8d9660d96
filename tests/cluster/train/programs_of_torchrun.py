"""Training programs that know torchrun alone: each gives a model's weights, and a script writes those of rank 0."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, Dataset, TensorDataset

GLOBAL_BATCH, EPOCHS, RATE = 16, 2, 0.1
ROWS = 100  # which batches don't divide


def rows() -> TensorDataset:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(ROWS, 5, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True))


def made() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def of_a_rank() -> int:
    return GLOBAL_BATCH // int(os.environ["WORLD_SIZE"])


def with_accelerate() -> torch.nn.Module:
    """With a schedule, of which accelerate takes a step a rank."""
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True), made()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    loader = DataLoader(rows(), batch_size=of_a_rank())
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(mse_loss(model(x), y))
            optimizer.step()
            schedule.step()
    return model


def with_lightning() -> torch.nn.Module:
    """With two backward passes a step."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.automatic_optimization = made(), False

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), RATE)

        def training_step(self, batch: Any, _: int) -> None:
            (x, y), optimizer = batch, self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(mse_loss(self.inner(x), y))
            self.manual_backward(0.1 * self.inner(x).abs().mean())
            optimizer.step()

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    # torchrun leaves these to the program; a run sets them.
    ranks = {} if "PL_TRAINER_DEVICES" in os.environ else {"devices": int(os.environ["WORLD_SIZE"]), "strategy": "ddp"}
    module = Module()
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", **silent, **ranks)
    trainer.fit(module, DataLoader(rows(), batch_size=of_a_rank()))
    return module.inner


def with_transformers() -> torch.nn.Module:
    """With two batches a step, one after the other."""
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = made()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            found = self.inner(x)
            return {"loss": mse_loss(found, labels), "logits": found}

    of_all = rows()

    class Rows(Dataset[dict[str, torch.Tensor]]):
        def __len__(self) -> int:
            return ROWS

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            x, y = of_all[index]
            return {"x": x, "labels": y}

    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=of_a_rank() // 2,
            gradient_accumulation_steps=2,
            num_train_epochs=EPOCHS,
            learning_rate=RATE,
            optim="sgd",
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        Trainer(model=model, args=arguments, train_dataset=Rows()).train()
    return model.inner


PROGRAMS = {each.__name__: each for each in (with_accelerate, with_lightning, with_transformers)}


def weights(program: str) -> list[float]:
    """What a program trains, as numbers in a row."""
    return torch.cat([each.detach().flatten() for each in PROGRAMS[program]().parameters()]).tolist()


if __name__ == "__main__":
    trained = weights(sys.argv[1])
    if os.environ["RANK"] == "0":
        Path(sys.argv[2]).write_text(json.dumps(trained))
