"""Models and loops of the kinds that keras.io teaches, rewritten small: ``fit`` ends where Keras' own ends.

Each program names the page that it is of the kind of. What those pages draw at random in a step (noise, dropout) comes
with the rows here, so that one process and several can be compared. All is in float64, where what is left are mistakes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
from keras import layers, ops

import dask_train as dt

pytestmark = [
    pytest.mark.slow,
    # Keras 3.15 warns of the inputs that its own FeatureSpace has made.
    pytest.mark.filterwarnings("ignore:.*The structure of .inputs. doesn.t match:UserWarning"),
]

ROWS, BATCH_SIZE, EPOCHS = 100, 24, 2  # 5 steps an epoch, the last one of 4 rows
TOLERANCE = 1e-5  # what rounding leaves is below 1e-12

random = np.random.default_rng(0)
IMAGES = random.random((ROWS, 8, 8, 1))
FLAT = random.normal(size=(ROWS, 6))
NOISE = random.normal(size=(ROWS, 2))
CLASSES = (FLAT @ random.normal(size=(6, 3))).argmax(1)
BINARY = (FLAT[:, 0] > 0).astype("float64")
TARGETS = FLAT[:, :2] * 2 + 1
TOKENS = random.integers(1, 20, size=(ROWS, 7))
TOKENS[:, 5:][random.random((ROWS, 2)) < 0.5] = 0  # padding
SERIES = random.normal(size=(ROWS, 7, 3))


@dataclass(frozen=True, kw_only=True)
class Program:
    """A model, and what it is fitted to.

    Attributes
    ----------
    page
        Of keras.io, whose kind it is of.
    ps
        Whether one worker with a parameter server trains the same model: it does where a step is one update.
    """

    page: str
    make: Callable[[], Any]
    x: Any
    y: Any = None
    arguments: Callable[[], dict[str, Any]] = dict
    ps: bool = False


PROGRAMS: dict[str, Program] = {}


def program(name: str, page: str, x: Any, y: Any = None, **settings: Any) -> Callable[[Callable[[], Any]], Any]:
    """Enter what makes a compiled model into the table of programs."""

    def enter(make: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS[name] = Program(page=page, make=make, x=x, y=y, **settings)
        return make

    return enter


# Images


@program("convnet", "examples/vision/mnist_convnet", IMAGES, keras.utils.to_categorical(CLASSES, 3), ps=True)
def convnet() -> Any:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    return model


@program("autoencoder", "examples/vision/autoencoder", IMAGES, IMAGES)
def autoencoder() -> Any:
    inputs = layers.Input((8, 8, 1))
    x = layers.Conv2D(4, 3, activation="relu", padding="same")(inputs)
    x = layers.MaxPooling2D(2, padding="same")(x)
    x = layers.Conv2DTranspose(4, 3, strides=2, activation="relu", padding="same")(x)
    model = keras.Model(inputs, layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x))
    model.compile(optimizer="adam", loss="binary_crossentropy")
    return model


class Patches(layers.Layer):
    """Cuts images into patches."""

    def __init__(self, patch_size: int) -> None:
        super().__init__()
        self.patch_size = patch_size

    def call(self, images: Any) -> Any:
        patches = ops.image.extract_patches(images, size=self.patch_size)
        return ops.reshape(patches, (ops.shape(images)[0], 4, self.patch_size**2))


class PatchEncoder(layers.Layer):
    """Adds an embedding of the position to each patch."""

    def __init__(self, num_patches: int, projection_dim: int) -> None:
        super().__init__()
        self.num_patches = num_patches
        self.projection = layers.Dense(units=projection_dim)
        self.position_embedding = layers.Embedding(input_dim=num_patches, output_dim=projection_dim)

    def call(self, patch: Any) -> Any:
        positions = ops.expand_dims(ops.arange(start=0, stop=self.num_patches, step=1), axis=0)
        return self.projection(patch) + self.position_embedding(positions)


@program("vision transformer", "examples/vision/image_classification_with_vision_transformer", IMAGES, CLASSES, ps=True)
def vision_transformer() -> Any:
    inputs = keras.Input(shape=(8, 8, 1))
    encoded = PatchEncoder(4, 6)(Patches(4)(inputs))
    x1 = layers.LayerNormalization(epsilon=1e-6)(encoded)
    x2 = layers.Add()([layers.MultiHeadAttention(num_heads=2, key_dim=3)(x1, x1), encoded])
    logits = layers.Dense(3)(layers.Flatten()(x2))
    model = keras.Model(inputs=inputs, outputs=logits)
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=0.001, weight_decay=0.0001),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
    )
    return model


class Distiller(keras.Model):
    """Trains a student on what a teacher says."""

    def __init__(self, student: Any, teacher: Any) -> None:
        super().__init__()
        self.teacher = teacher
        self.student = student

    def compile(
        self, optimizer: Any, metrics: Any, student_loss_fn: Any, distillation_loss_fn: Any, alpha: float = 0.1
    ) -> None:
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = student_loss_fn
        self.distillation_loss_fn = distillation_loss_fn
        self.alpha = alpha

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, allow_empty: bool = False
    ) -> Any:
        teacher_pred = self.teacher(x, training=False)
        student_loss = self.student_loss_fn(y, y_pred)
        distillation_loss = self.distillation_loss_fn(
            ops.softmax(teacher_pred / 3.0, axis=1), ops.softmax(y_pred / 3.0, axis=1)
        )
        return self.alpha * student_loss + (1 - self.alpha) * distillation_loss * 9.0

    def call(self, x: Any) -> Any:
        return self.student(x)


@program("knowledge distillation", "examples/vision/knowledge_distillation", FLAT, CLASSES, ps=True)
def distiller() -> Any:
    student, teacher = (
        keras.Sequential([keras.Input((6,)), layers.Dense(units, "tanh"), layers.Dense(3)]) for units in (4, 8)
    )
    model = Distiller(student=student, teacher=teacher)
    model.compile(
        optimizer=keras.optimizers.Adam(),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
        student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        distillation_loss_fn=keras.losses.KLDivergence(),
    )
    return model


@program("siamese network", "examples/vision/siamese_contrastive", [FLAT, FLAT[::-1].copy()], BINARY, ps=True)
def siamese() -> Any:
    embedding = keras.Sequential([keras.Input((6,)), layers.Dense(5, activation="tanh")])
    one, other = keras.Input((6,)), keras.Input((6,))

    def distance(vectors: Any) -> Any:
        x, y = vectors
        return ops.sqrt(ops.maximum(ops.sum(ops.square(x - y), axis=1, keepdims=True), keras.backend.epsilon()))

    def contrastive(y_true: Any, y_pred: Any) -> Any:
        margin = ops.square(ops.maximum(1 - y_pred, 0))
        return ops.mean((1 - y_true) * ops.square(y_pred) + y_true * margin)

    merged = layers.Lambda(distance, output_shape=(1,))([embedding(one), embedding(other)])
    model = keras.Model([one, other], layers.Dense(1, activation="sigmoid")(merged))
    model.compile(loss=contrastive, optimizer="RMSprop", metrics=["accuracy"])
    return model


class CTCLayer(layers.Layer):
    """An end point that computes its own loss."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        label_length = ops.full((ops.shape(y_true)[0],), 3, dtype="int32")
        input_length = ops.full((ops.shape(y_true)[0],), 7, dtype="int32")
        loss = ops.nn.ctc_loss(ops.cast(y_true, "int32"), y_pred, label_length, input_length, mask_index=0)
        self.add_loss(loss)
        return y_pred


@program(
    "endpoint with a loss of its own", "examples/vision/captcha_ocr", {"series": SERIES, "label": TOKENS[:, :3] % 4 + 1}
)
def captcha() -> Any:
    series, labels = layers.Input((7, 3), name="series"), layers.Input((3,), name="label", dtype="int64")
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(series)
    x = layers.Dense(6)(x)
    model = keras.Model(inputs=[series, labels], outputs=CTCLayer(name="ctc_loss")(labels, x))
    model.compile(optimizer=keras.optimizers.Adam())
    return model


# Text


class TransformerBlock(layers.Layer):
    """Attention and a feed-forward network."""

    def __init__(self, embed_dim: int, num_heads: int, ff_dim: int) -> None:
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = keras.Sequential([layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)])
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs: Any) -> Any:
        out1 = self.layernorm1(inputs + self.att(inputs, inputs))
        return self.layernorm2(out1 + self.ffn(out1))


class TokenAndPositionEmbedding(layers.Layer):
    """Embeds tokens and their places."""

    def __init__(self, maxlen: int, vocab_size: int, embed_dim: int) -> None:
        super().__init__()
        self.token_emb = layers.Embedding(input_dim=vocab_size, output_dim=embed_dim)
        self.pos_emb = layers.Embedding(input_dim=maxlen, output_dim=embed_dim)

    def call(self, x: Any) -> Any:
        positions = ops.arange(start=0, stop=ops.shape(x)[-1], step=1)
        return self.token_emb(x) + self.pos_emb(positions)


@program("text transformer", "examples/nlp/text_classification_with_transformer", TOKENS, CLASSES, ps=True)
def text_transformer() -> Any:
    inputs = layers.Input(shape=(7,))
    x = TransformerBlock(4, 2, 4)(TokenAndPositionEmbedding(7, 20, 4)(inputs))
    outputs = layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    model = keras.Model(inputs=inputs, outputs=outputs)
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


@program("masked bidirectional LSTM", "guides/understanding_masking_and_padding", TOKENS, BINARY)
def masked_lstm() -> Any:
    inputs = keras.Input(shape=(None,), dtype="int32")
    x = layers.Embedding(20, 4, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(x)
    x = layers.Bidirectional(layers.LSTM(3))(x)
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model


@program("sequence to sequence", "examples/nlp/lstm_seq2seq", [SERIES, SERIES[:, ::-1].copy()], TOKENS)
def sequence_to_sequence() -> Any:
    encoder_inputs, decoder_inputs = keras.Input((None, 3)), keras.Input((None, 3))
    _, state_h, state_c = layers.LSTM(4, return_state=True)(encoder_inputs)
    outputs, _, _ = layers.LSTM(4, return_sequences=True, return_state=True)(
        decoder_inputs, initial_state=[state_h, state_c]
    )
    model = keras.Model([encoder_inputs, decoder_inputs], layers.Dense(20, activation="softmax")(outputs))
    model.compile(optimizer="rmsprop", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


# Generators: no call(), several networks and optimizers


class VAE(keras.Model):
    """A variational autoencoder, which nobody calls."""

    def __init__(self, encoder: Any, decoder: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.encoder = encoder
        self.decoder = decoder
        self.total_loss_tracker = keras.metrics.Mean(name="total_loss")
        self.kl_loss_tracker = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.total_loss_tracker, self.kl_loss_tracker]

    def train_step(self, data: Any) -> dict[str, Any]:
        import tensorflow as tf

        (images, noise), *_ = data
        with tf.GradientTape() as tape:
            z_mean, z_log_var = self.encoder(images)
            reconstruction = self.decoder(z_mean + ops.exp(0.5 * z_log_var) * noise)
            reconstruction_loss = ops.mean(
                ops.sum(keras.losses.binary_crossentropy(images, reconstruction), axis=(1, 2))
            )
            kl_loss = -0.5 * (1 + z_log_var - ops.square(z_mean) - ops.exp(z_log_var))
            kl_loss = ops.mean(ops.sum(kl_loss, axis=1))
            total_loss = reconstruction_loss + kl_loss
        grads = tape.gradient(total_loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights, strict=True))
        self.total_loss_tracker.update_state(total_loss)
        self.kl_loss_tracker.update_state(kl_loss)
        return {"loss": self.total_loss_tracker.result(), "kl_loss": self.kl_loss_tracker.result()}


@program("variational autoencoder", "examples/generative/vae", (IMAGES, NOISE), ps=True)
def variational_autoencoder() -> Any:
    images, z = keras.Input((8, 8, 1)), keras.Input((2,))
    x = layers.Dense(5, "relu")(layers.Flatten()(images))
    encoder = keras.Model(images, [layers.Dense(2)(x), layers.Dense(2)(x)])
    decoder = keras.Model(z, layers.Reshape((8, 8, 1))(layers.Dense(64, "sigmoid")(z)))
    model = VAE(encoder, decoder)
    model.compile(optimizer=keras.optimizers.Adam())
    return model


class GAN(keras.Model):
    """Two networks against each other, each with an optimizer of its own."""

    def __init__(self, discriminator: Any, generator: Any) -> None:
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.d_loss_tracker = keras.metrics.Mean(name="discriminator_loss")
        self.g_loss_tracker = keras.metrics.Mean(name="generator_loss")

    def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any) -> None:
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    @property
    def metrics(self) -> list[Any]:
        return [self.d_loss_tracker, self.g_loss_tracker]

    def train_step(self, data: Any) -> dict[str, Any]:
        import tensorflow as tf

        (real, noise), *_ = data
        batch_size = ops.shape(real)[0]
        combined = ops.concatenate([self.generator(noise), real], axis=0)
        labels = ops.concatenate([ops.ones((batch_size, 1)), ops.zeros((batch_size, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(combined))
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(grads, self.discriminator.trainable_weights, strict=True))
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(ops.zeros((batch_size, 1)), self.discriminator(self.generator(noise)))
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights, strict=True))
        self.d_loss_tracker.update_state(d_loss)
        self.g_loss_tracker.update_state(g_loss)
        return {"d_loss": self.d_loss_tracker.result(), "g_loss": self.g_loss_tracker.result()}


@program("generative adversarial network", "examples/generative/dcgan_overriding_train_step", (FLAT, NOISE))
def adversaries() -> Any:
    discriminator = keras.Sequential([keras.Input((6,)), layers.Dense(4), layers.LeakyReLU(), layers.Dense(1)])
    generator = keras.Sequential([keras.Input((2,)), layers.Dense(4), layers.LeakyReLU(), layers.Dense(6)])
    model = GAN(discriminator=discriminator, generator=generator)
    model.compile(
        d_optimizer=keras.optimizers.Adam(learning_rate=0.0003),
        g_optimizer=keras.optimizers.Adam(learning_rate=0.0003),
        loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model


class Diffusion(keras.Model):
    """Learns to take noise away; a second network follows the first one's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.normalizer = layers.Normalization()
        self.network = keras.Sequential([keras.Input((6,)), layers.Dense(5, "tanh"), layers.Dense(6)])
        self.ema_network = keras.models.clone_model(self.network)

    def compile(self, **kwargs: Any) -> None:
        super().compile(**kwargs)
        self.noise_loss_tracker = keras.metrics.Mean(name="n_loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.noise_loss_tracker]

    def train_step(self, data: Any) -> dict[str, Any]:
        import tensorflow as tf

        (rows, noises), *_ = data
        rows = self.normalizer(rows, training=True)
        with tf.GradientTape() as tape:
            noise_loss = self.loss(noises, self.network(0.8 * rows + 0.6 * noises, training=True))
        gradients = tape.gradient(noise_loss, self.network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights, strict=True))
        self.noise_loss_tracker.update_state(noise_loss)
        for weight, ema_weight in zip(self.network.weights, self.ema_network.weights, strict=True):
            ema_weight.assign(0.9 * ema_weight + 0.1 * weight)
        return {m.name: m.result() for m in self.metrics}


@program("diffusion", "examples/generative/ddim", (FLAT, FLAT[::-1].copy()))
def diffusion() -> Any:
    model = Diffusion()
    model.normalizer.adapt(FLAT)
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=1e-3, weight_decay=1e-4), loss=keras.losses.mean_absolute_error
    )
    return model


class VectorQuantizer(layers.Layer):
    """Replaces vectors with those of a code book, which it has a loss for."""

    def __init__(self, num_embeddings: int, embedding_dim: int, beta: float = 0.25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.embedding_dim = embedding_dim
        self.num_embeddings = num_embeddings
        self.beta = beta
        self.embeddings = self.add_weight(
            shape=(embedding_dim, num_embeddings), initializer="random_uniform", trainable=True, name="embeddings_vqvae"
        )

    def call(self, x: Any) -> Any:
        distances = (
            ops.sum(x**2, axis=1, keepdims=True)
            + ops.sum(self.embeddings**2, axis=0)
            - 2 * ops.matmul(x, self.embeddings)
        )
        encodings = ops.one_hot(ops.argmin(distances, axis=1), self.num_embeddings, dtype=x.dtype)
        quantized = ops.matmul(encodings, ops.transpose(self.embeddings))
        commitment_loss = ops.mean((ops.stop_gradient(quantized) - x) ** 2)
        codebook_loss = ops.mean((quantized - ops.stop_gradient(x)) ** 2)
        self.add_loss(self.beta * commitment_loss + codebook_loss)
        return x + ops.stop_gradient(quantized - x)


@program("vector quantisation", "examples/generative/vq_vae", FLAT, FLAT)
def vector_quantisation() -> Any:
    inputs = keras.Input((6,))
    quantized = VectorQuantizer(8, 3)(layers.Dense(3)(inputs))
    model = keras.Model(inputs, layers.Dense(6)(quantized))
    model.compile(keras.optimizers.Adam(), "mse")
    return model


# Tables


class RecommenderNet(keras.Model):
    """Users and books as vectors, their product as a score."""

    def __init__(self, num_users: int, num_items: int, embedding_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.user_embedding = layers.Embedding(
            num_users,
            embedding_size,
            embeddings_initializer="he_normal",
            embeddings_regularizer=keras.regularizers.l2(1e-3),
        )
        self.user_bias = layers.Embedding(num_users, 1)
        self.item_embedding = layers.Embedding(
            num_items,
            embedding_size,
            embeddings_initializer="he_normal",
            embeddings_regularizer=keras.regularizers.l2(1e-3),
        )
        self.item_bias = layers.Embedding(num_items, 1)

    def call(self, inputs: Any) -> Any:
        user_vector = self.user_embedding(inputs[:, 0])
        item_vector = self.item_embedding(inputs[:, 1])
        x = ops.sum(user_vector * item_vector, axis=1, keepdims=True)
        x = x + self.user_bias(inputs[:, 0]) + self.item_bias(inputs[:, 1])
        return ops.nn.sigmoid(x)


@program("recommender", "examples/structured_data/collaborative_filtering_movielens", TOKENS[:, :2], BINARY, ps=True)
def recommender() -> Any:
    model = RecommenderNet(20, 20, 4)
    model.compile(loss=keras.losses.BinaryCrossentropy(), optimizer=keras.optimizers.Adam(learning_rate=0.001))
    return model


TABLE = pd.DataFrame(
    {
        "age": FLAT[:, 0],
        "balance": FLAT[:, 1],
        "job": np.array(["clerk", "nurse", "pilot"])[CLASSES],
        "late": BINARY,
    }
)
INPUTS = ("age", "balance", "job")


@program(
    "feature space",
    "examples/structured_data/structured_data_classification_with_feature_space",
    {name: TABLE[name].to_numpy() for name in INPUTS},
    BINARY,
)
def feature_space() -> Any:
    import tensorflow as tf

    space = keras.utils.FeatureSpace(
        features={
            "age": "float_normalized",
            "balance": keras.utils.FeatureSpace.float_discretized(num_bins=4),
            "job": "string_categorical",
        },
        output_mode="concat",
    )
    space.adapt(tf.data.Dataset.from_tensor_slices({name: TABLE[name].to_numpy() for name in INPUTS}))
    outputs = layers.Dense(1, activation="sigmoid")(layers.Dense(4, "tanh")(space.get_encoded_features()))
    model = keras.Model(inputs=space.get_inputs(), outputs=outputs)
    model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
    return model


@program(
    "imbalanced classes",
    "examples/structured_data/imbalanced_classification",
    FLAT,
    BINARY[:, None],
    arguments=lambda: {"class_weight": dict(zip(*np.unique(BINARY.astype(int), return_counts=True), strict=True))},
)
def imbalanced() -> Any:
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, activation="relu"), layers.Dense(1, activation="sigmoid")]
    )
    metrics = [keras.metrics.FalseNegatives(name="fn"), keras.metrics.Precision(name="precision")]
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="binary_crossentropy", metrics=metrics)
    return model


class RandomFeatures(layers.Layer):
    """Maps rows to random features of a kernel; its weights are not trained."""

    def __init__(self, output_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.output_dim = output_dim

    def build(self, input_shape: Any) -> None:
        normal = keras.initializers.RandomNormal(stddev=1.0)
        self.kernel = self.add_weight(shape=(input_shape[-1], self.output_dim), initializer=normal, trainable=False)
        self.bias = self.add_weight(shape=(self.output_dim,), initializer="random_uniform", trainable=False)

    def call(self, inputs: Any) -> Any:
        return ops.cos(ops.matmul(inputs, self.kernel) + self.bias)


@program("quasi-SVM", "examples/keras_recipes/quasi_svm", FLAT, keras.utils.to_categorical(CLASSES, 3), ps=True)
def quasi_svm() -> Any:
    model = keras.Sequential([keras.Input((6,)), RandomFeatures(16), layers.Dense(units=3)])
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=1e-3),
        loss=keras.losses.hinge,
        metrics=[keras.metrics.CategoricalAccuracy(name="acc")],
    )
    return model


# Graphs and series


class GraphConv(layers.Layer):
    """Gathers what neighbours of nodes say."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.ffn_prepare = layers.Dense(units, "tanh")
        self.ffn_update = layers.Dense(units, "tanh")

    def call(self, inputs: Any) -> Any:
        nodes, edges = inputs
        messages = self.ffn_prepare(ops.take(nodes, edges[1], axis=0))
        gathered = ops.segment_sum(messages, edges[0], num_segments=nodes.shape[0])
        return self.ffn_update(ops.concatenate([nodes, gathered], axis=1))


class GNNNodeClassifier(keras.Model):
    """Classifies nodes of a graph that it holds; its input are their numbers."""

    def __init__(self, nodes: Any, edges: Any, num_classes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.nodes, self.edges = nodes, edges
        self.conv1 = GraphConv(4)
        self.compute_logits = layers.Dense(num_classes)

    def call(self, input_node_indices: Any) -> Any:
        x = self.conv1((ops.convert_to_tensor(self.nodes), ops.convert_to_tensor(self.edges)))
        return self.compute_logits(ops.take(x, input_node_indices, axis=0))


@program("graph network", "examples/graph/gnn_citations", np.arange(ROWS), CLASSES)
def graph_network() -> Any:
    edges = np.random.default_rng(3).integers(0, ROWS, size=(2, 300))
    model = GNNNodeClassifier(FLAT, edges, 3)
    model.compile(
        keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["acc"]
    )
    return model


@program("time series", "examples/timeseries/timeseries_weather_forecasting", SERIES, TARGETS[:, :1], ps=True)
def time_series() -> Any:
    inputs = keras.layers.Input((7, 3))
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.LSTM(4)(inputs)))
    model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.001), loss="mse")
    return model


# Loops and callbacks


class CustomFit(keras.Model):
    """Computes its loss and metrics itself, with sample weights."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.mae_metric = keras.metrics.MeanAbsoluteError(name="mae")
        self.loss_fn = keras.losses.MeanSquaredError()

    def train_step(self, data: Any) -> dict[str, Any]:
        import tensorflow as tf

        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.loss_fn(y, y_pred, sample_weight=sample_weight)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        self.loss_tracker.update_state(loss)
        self.mae_metric.update_state(y, y_pred, sample_weight=sample_weight)
        return {m.name: m.result() for m in self.metrics}

    @property
    def metrics(self) -> list[Any]:
        return [self.loss_tracker, self.mae_metric]


@program(
    "customised fit",
    "guides/custom_train_step_in_tensorflow",
    FLAT,
    TARGETS,
    arguments=lambda: {"sample_weight": np.linspace(0.1, 2.0, ROWS)},
    ps=True,
)
def customised_fit() -> Any:
    inputs = keras.Input(shape=(6,))
    model = CustomFit(inputs, keras.layers.Dense(2)(inputs))
    model.compile(optimizer="adam")
    return model


class EarlyStoppingAtMinLoss(keras.callbacks.Callback):
    """Stops when the loss is at its minimum, and takes the weights of that epoch back."""

    def __init__(self, patience: int = 0) -> None:
        super().__init__()
        self.patience = patience
        self.best_weights = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.wait, self.stopped_epoch, self.best = 0, 0, np.inf

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        current = logs.get("loss")
        if np.less(current, self.best):
            self.best, self.wait, self.best_weights = current, 0, self.model.get_weights()
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.stopped_epoch = epoch
                self.model.stop_training = True
                self.model.set_weights(self.best_weights)


class CustomLearningRateScheduler(keras.callbacks.Callback):
    """Sets the learning rate at the beginning of epochs; the last one is too large."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = 0.1 if epoch < 2 else 2.0


class EvaluateElsewhere(keras.callbacks.Callback):
    """Evaluates on other data at the end of each epoch, in the middle of training."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["elsewhere"] = self.model.evaluate(FLAT[:30], TARGETS[:30] + 1, verbose=0)


@program(
    "callbacks of one's own",
    "guides/writing_your_own_callbacks",
    FLAT,
    TARGETS,
    arguments=lambda: {
        "epochs": 5,
        "callbacks": [CustomLearningRateScheduler(), EvaluateElsewhere(), EarlyStoppingAtMinLoss()],
        "validation_data": (FLAT[:50], TARGETS[:50]),
    },
    ps=True,
)
def with_callbacks() -> Any:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(2)])
    model.compile(optimizer=keras.optimizers.SGD(learning_rate=0.1), loss="mean_squared_error")
    return model


@program(
    "several inputs and outputs",
    "guides/functional_api",
    {"title": TOKENS, "body": SERIES},
    {"priority": BINARY[:, None], "department": keras.utils.to_categorical(CLASSES, 3)},
    arguments=lambda: {"validation_split": 0.2},
)
def tickets() -> Any:
    title, body = keras.Input((7,), name="title", dtype="int64"), keras.Input((7, 3), name="body")
    x = layers.concatenate([layers.LSTM(4)(layers.Embedding(20, 4)(title)), layers.LSTM(3)(body)])
    outputs = {
        "priority": layers.Dense(1, name="priority")(x),
        "department": layers.Dense(3, name="department")(x),
    }
    model = keras.Model(inputs={"title": title, "body": body}, outputs=outputs)
    model.compile(
        optimizer=keras.optimizers.RMSprop(1e-3),
        loss={
            "priority": keras.losses.BinaryCrossentropy(from_logits=True),
            "department": keras.losses.CategoricalCrossentropy(from_logits=True),
        },
        loss_weights={"priority": 1.0, "department": 0.2},
    )
    return model


class GCRMSprop(keras.optimizers.RMSprop):
    """Centralises gradients before they are applied."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        centred = [
            gradient - ops.mean(gradient, axis=0, keepdims=True) if len(gradient.shape) > 1 else gradient
            for gradient in grads
        ]
        return super().apply(centred, trainable_variables)


@program("gradient centralisation", "examples/vision/gradient_centralization", FLAT, CLASSES, ps=True)
def gradient_centralisation() -> Any:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(5, "relu"), layers.Dense(3, "softmax")])
    model.compile(GCRMSprop(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


class Antirectifier(layers.Layer):
    """Normalises, and keeps both signs."""

    def __init__(self, initializer: str = "he_normal", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight(
            shape=(input_shape[-1] * 2, 4), initializer=self.initializer, name="kernel", trainable=True
        )

    def call(self, inputs: Any) -> Any:
        inputs = inputs - ops.mean(inputs, axis=-1, keepdims=True)
        return ops.matmul(ops.concatenate([ops.relu(inputs), ops.relu(-inputs)], axis=-1), self.kernel)


@program("layer of one's own", "examples/keras_recipes/antirectifier", FLAT, CLASSES)
def antirectifier() -> Any:
    model = keras.Sequential([layers.Dense(6), Antirectifier(), layers.Dense(3)])  # not built yet
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.RMSprop(),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    model.build((None, 6))
    return model


# All of them


@pytest.fixture(scope="module", autouse=True)
def float64() -> Iterator[None]:
    floatx, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")  # it is the floatx of the moment at which somebody first asked for it
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


@pytest.fixture(scope="module")
def client(train_client):
    return train_client


def made(entry: Program) -> Any:
    keras.utils.set_random_seed(7)
    return entry.make()


@functools.cache
def trained_alone(name: str) -> tuple[list[np.ndarray], dict[str, list[float]]]:
    entry = PROGRAMS[name]
    model = made(entry)
    settings = {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0, **entry.arguments()}
    history = model.fit(entry.x, entry.y, **settings).history
    return model.get_weights(), history


def trained_here(entry: Program, **roles: int) -> Any:
    model = made(entry)
    settings = {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "shuffle": False, "verbose": 0, **entry.arguments()}
    return model, dt.fit(model, entry.x, entry.y, **settings, **roles).history


def check(name: str, **roles: int) -> None:
    model, history = trained_here(PROGRAMS[name], **roles)
    weights, wanted_history = trained_alone(name)
    for found, expected in zip(model.weights, weights, strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=found.path)
    assert set(history) == set(wanted_history)
    for name, values in wanted_history.items():
        np.testing.assert_allclose(history[name], values, rtol=TOLERANCE, err_msg=name)


# They take longest; what they show, others show here or in the tests of exact losses.
NIGHTLY = (
    "endpoint with a loss of its own",
    "masked bidirectional LSTM",
    "several inputs and outputs",
    "vision transformer",
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] if name in NIGHTLY else []) for name in PROGRAMS]
)
def test_two_workers_train_the_model_of_keras(client, name):
    check(name, workers=2)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("convnet", "recommender") else [pytest.mark.nightly])
        for name, entry in PROGRAMS.items()
        if entry.ps
    ],
)
def test_a_worker_and_a_parameter_server_train_the_model_of_keras(client, name):
    check(name, workers=1, ps=1)
