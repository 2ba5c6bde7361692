"""Recurrent PPO. It knows nothing of shaping but the interface."""
