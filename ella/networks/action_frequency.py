"""LEARN's classifier: do these action frequencies go with this instruction?"""

from dataclasses import dataclass
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int32, PRNGKeyArray

from ella.networks.normalisation import Moments, Normalisation, initial_moments, moving_average
from ella.networks.settings import ActionFrequencyNetworkSettings
from ella.world.encoding import NUM_ACTIONS
from ella.world.grammar import VOCABULARY_SIZE

INITIAL_BIAS = 0.1


class NormalisedLayers(eqx.Module):
    """Dense layers; each but the last is followed by a relu and then by normalisation."""

    weights: tuple[Float[Array, "I O"], ...]
    biases: tuple[Float[Array, " O"], ...]
    normalisations: tuple[Normalisation, ...]

    def __init__(self, widths: tuple[int, ...], *, key: PRNGKeyArray):
        keys = jax.random.split(key, len(widths) - 1)
        glorot = jax.nn.initializers.glorot_uniform()
        self.weights = tuple(
            glorot(layer_key, shape)
            for layer_key, shape in zip(keys, pairwise(widths), strict=True)
        )
        self.biases = tuple(jnp.full(width, INITIAL_BIAS) for width in widths[1:])
        self.normalisations = tuple(Normalisation(width, "minibatch") for width in widths[1:-1])

    def initial_statistics(self) -> tuple[Moments, ...]:
        return tuple(initial_moments(part.weight.shape[0]) for part in self.normalisations)

    def __call__(
        self, x: Float[Array, "N I"], running: tuple[Moments, ...] | None
    ) -> tuple[Float[Array, "N O"], tuple[Moments, ...]]:
        """The outputs, and the moments [1, C] of the batch. Normalisation uses `running` where
        given."""
        found = []
        for i, normalisation in enumerate(self.normalisations):
            x = jax.nn.relu(x @ self.weights[i] + self.biases[i])
            scale, shift, moments = normalisation.affine(x[None], running[i] if running else None)
            x = x * scale[0] + shift[0]
            found.append(moments)
        return x @ self.weights[-1] + self.biases[-1], tuple(found)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ActionFrequencyStatistics:
    """Means and variances of the normalisations."""

    histogram: tuple[Moments, ...]
    joint: tuple[Moments, ...]

    def updated(
        self, batch: "ActionFrequencyStatistics", momentum: float
    ) -> "ActionFrequencyStatistics":
        """Running statistics after one more batch's."""

        def each(old: tuple[Moments, ...], new: tuple[Moments, ...]) -> tuple[Moments, ...]:
            return tuple(moving_average(a, b, momentum) for a, b in zip(old, new, strict=True))

        return ActionFrequencyStatistics(
            each(self.histogram, batch.histogram), each(self.joint, batch.joint)
        )


class ActionFrequencyClassifier(eqx.Module):
    """Scores of 'unrelated' and 'related' for pairs of an instruction and action frequencies."""

    embedding: Float[Array, "V W"]
    lower: eqx.nn.GRUCell
    upper: eqx.nn.GRUCell
    histogram: NormalisedLayers
    joint: NormalisedLayers

    def __init__(self, settings: ActionFrequencyNetworkSettings, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 5)
        width = settings.width
        self.embedding = jax.random.normal(keys[0], (VOCABULARY_SIZE, width))
        self.lower = eqx.nn.GRUCell(width, width, key=keys[1])
        self.upper = eqx.nn.GRUCell(width, width, key=keys[2])
        self.histogram = NormalisedLayers((NUM_ACTIONS, width, width, width), key=keys[3])
        self.joint = NormalisedLayers((2 * width, width, width, 2), key=keys[4])

    def initial_statistics(self) -> ActionFrequencyStatistics:
        return ActionFrequencyStatistics(
            self.histogram.initial_statistics(), self.joint.initial_statistics()
        )

    def read(self, tokens: Int32[Array, " n"]) -> Float[Array, " W"]:
        """One sentence: the second GRU layer's output at its last word."""
        words = jax.nn.one_hot(tokens, self.embedding.shape[0]) @ self.embedding

        def step(
            hidden: tuple[Array, Array], word: tuple[Array, Array]
        ) -> tuple[tuple[Array, Array], None]:
            embedded, is_word = word
            lower = self.lower(embedded, hidden[0])
            upper = self.upper(lower, hidden[1])
            new = (lower, upper)
            return jax.tree.map(lambda a, b: jnp.where(is_word, a, b), new, hidden), None

        nothing = jnp.zeros(self.lower.hidden_size)
        (_, upper), _ = jax.lax.scan(step, (nothing, nothing), (words, tokens > 0))
        return upper

    def __call__(
        self,
        sentence: Float[Array, "N W"],
        histogram: Float[Array, "N A"],
        running: ActionFrequencyStatistics | None,
    ) -> tuple[Float[Array, "N 2"], ActionFrequencyStatistics]:
        """Scores of N pairs, sentences as `read` gives them and histograms summing to 1 (or 0).

        Also the moments of the batch. Normalisation uses `running` where given (at use), the
        batch's own statistics otherwise (in training).
        """
        seen, histogram_moments = self.histogram(histogram, running.histogram if running else None)
        scores, joint_moments = self.joint(
            jnp.concatenate([sentence, seen], axis=-1), running.joint if running else None
        )
        return scores, ActionFrequencyStatistics(histogram_moments, joint_moments)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ActionFrequencyModel:
    """A classifier and the normalisation statistics it is used with."""

    classifier: ActionFrequencyClassifier
    statistics: ActionFrequencyStatistics

    def relatedness(
        self, sentence: Float[Array, "N W"], histogram: Float[Array, "N A"]
    ) -> Float[Array, " N"]:
        """p(related) - p(unrelated), between -1 and 1."""
        scores, _ = self.classifier(sentence, histogram, self.statistics)
        # The difference of the two softmax probabilities.
        return jnp.tanh((scores[:, 1] - scores[:, 0]) / 2)


def empty_model(
    settings: ActionFrequencyNetworkSettings, *, key: PRNGKeyArray
) -> ActionFrequencyModel:
    """An untrained model; also the template that saved weights are read into."""
    classifier = ActionFrequencyClassifier(settings, key=key)
    return ActionFrequencyModel(classifier, classifier.initial_statistics())
