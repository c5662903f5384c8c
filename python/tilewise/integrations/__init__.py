"""Tilewise inside other libraries. A module here imports its library, so nothing is imported before it is asked for."""
