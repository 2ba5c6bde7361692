"""The world for other people's trainers."""
