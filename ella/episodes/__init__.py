"""Playing, recording and explaining single episodes."""
