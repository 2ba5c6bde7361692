"""Methods by name: what each adds to PPO's reward."""
