"""Data of the wide suite: genes, text, images and generated sets, small and large, some with a rare class."""
