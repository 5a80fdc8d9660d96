"""transformers.Trainer on a tiny BERT with random weights: two ranks train the very model that one does.

The Trainer shares the rows out among ranks, so it is given all of them: ``session.torch_dataset()``, whose rows are
dicts, since the data is one. Its checkpoints go below ``session.checkpoint_location``.
Run it: ``python examples/loops/with_transformers.py``.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from distributed import Client

import dask_train as dt
from dask_train.cluster.local import local_client

ROWS, TOKENS, WORDS, GLOBAL_BATCH = 160, 12, 50, 16


def worker(session: dt.Session) -> dict[str, Any]:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

    set_seed(0)
    tiny = BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=TOKENS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForSequenceClassification(tiny)
    folder = f"{session.checkpoint_location}/transformers"
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=2,
        per_device_train_batch_size=GLOBAL_BATCH // session.size,
        learning_rate=1e-3,
        average_tokens_across_devices=False,  # this model takes the mean of its loss itself
        report_to=[],
        disable_tqdm=True,
        save_strategy="epoch",
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=session.torch_dataset())
    trained = trainer.train()
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    return {"weights": weights.numpy(), "ranks": arguments.world_size, "loss": trained.training_loss}


def rows() -> dict[str, np.ndarray]:
    """Sentences of words by their numbers, and whether the first one is among the first half of all words."""
    words = np.random.default_rng(0).integers(0, WORDS, (ROWS, TOKENS))
    return {"input_ids": words, "labels": (words[:, 0] < WORDS // 2).astype("int64")}


def main(client: Client, folder: str) -> list[str]:
    """Train with one rank and with two; returns what to print."""
    alone, together = (
        dt.train(
            worker,
            roles={"worker": size},
            data=rows(),
            framework="torch",
            checkpoint=f"{folder}/transformers-{size}",
            client=client,
        ).results["worker"]
        for size in (1, 2)
    )
    apart = max(float(np.abs(found["weights"] - alone[0]["weights"]).max()) for found in together)
    assert [found["ranks"] for found in together] == [2, 2]
    assert apart < 1e-4, apart  # float32
    return [f"loss {alone[0]['loss']:.3f}; furthest weight of two ranks from those of one: {apart:.0e}"]


if __name__ == "__main__":
    with local_client(2) as one, tempfile.TemporaryDirectory() as place:
        print(*main(one, place), sep="\n")
