"""Recipes: what applications build around a delay, each in one file that runs."""
