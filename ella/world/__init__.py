"""The grid world: BabyAI's tasks as pure functions on arrays."""
