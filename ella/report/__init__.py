"""Reads what runs leave behind: curves, tables, films."""
