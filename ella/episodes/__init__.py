"""Playing, filming and explaining single episodes."""
