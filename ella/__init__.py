"""ELLA: reward shaping through learned language abstraction, on a JAX-native BabyAI."""

__version__ = "0.1.0"
