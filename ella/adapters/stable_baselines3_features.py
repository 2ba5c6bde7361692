"""What a Stable-Baselines3 policy reads of BabyAI's observations: embedded words and cells."""

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from ella.errors import InputError

PADDING = 0


class BabyAIFeatures(BaseFeaturesExtractor):
    """Features float[B, features_dim] of `image`, `mission` and, if there, `direction`.

    Give it to a policy with `policy_kwargs={"features_extractor_class": BabyAIFeatures}`. Without
    it Stable-Baselines3 reads token ids and cell codes as magnitudes. Each of a cell's numbers
    (type, colour, state) has its own table of embeddings; a GRU reads the mission's words up to
    its padding, and modulates the cells' features (FiLM) before they are flattened.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        features_dim: int = 128,
        *,
        cell_width: int = 16,
        word_width: int = 32,
    ) -> None:
        super().__init__(observation_space, features_dim)
        image, mission = (_box(observation_space, name) for name in ("image", "mission"))
        if len(image.shape) != 3 or len(mission.shape) != 1:
            raise InputError(
                "the features need image [width, height, numbers] and mission [words], got "
                f"{list(image.shape)} and {list(mission.shape)}"
            )
        width, height, numbers = image.shape
        sizes = [int(image.high[..., number].max()) + 1 for number in range(numbers)]
        self.cells = nn.ModuleList(nn.Embedding(size, cell_width) for size in sizes)
        self.words = nn.Embedding(int(mission.high.max()) + 1, word_width, padding_idx=PADDING)
        self.sentence = nn.GRU(word_width, word_width, batch_first=True)
        self.modulation = nn.Linear(word_width, 4 * cell_width)
        self.convolution = nn.Conv2d(cell_width, 2 * cell_width, 3, padding=1)
        direction = observation_space.spaces.get("direction")
        self._reads_direction = direction is not None
        flat = 2 * cell_width * width * height + word_width
        flat += spaces.flatdim(direction) if direction is not None else 0
        self.head = nn.Sequential(nn.Linear(flat, features_dim), nn.ReLU())

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        """Numbers arrive as floats, `direction` one-hot: Stable-Baselines3 prepares them so."""
        image, tokens = observations["image"].long(), observations["mission"].long()
        cells = sum(table(image[..., number]) for number, table in enumerate(self.cells))
        spoken = self._read(tokens)
        scale, shift = self.modulation(spoken)[..., None, None].chunk(2, dim=1)
        seen = self.convolution(cells.movedim(-1, 1))
        parts = [torch.relu(seen * (1 + scale) + shift).flatten(1), spoken]
        if self._reads_direction:
            parts.append(observations["direction"].flatten(1))
        return self.head(torch.cat(parts, dim=1))

    def _read(self, tokens: torch.Tensor) -> torch.Tensor:
        """float[B, word_width]: the GRU's state after each sentence's last word."""
        states, _ = self.sentence(self.words(tokens))
        last = (tokens != PADDING).sum(1).clamp(min=1) - 1
        return states[torch.arange(len(tokens), device=tokens.device), last]


def _box(observation_space: spaces.Dict, name: str) -> spaces.Box:
    space = observation_space.spaces.get(name)
    if not isinstance(space, spaces.Box):
        raise InputError(
            f"the features need a Box '{name}' among the observations; minigrid's own environments "
            "have one inside ella.adapters.minigrid_tokens.TokenMissions"
        )
    return space
