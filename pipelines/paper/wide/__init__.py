"""The data of the wide suite: genes, text, images, generated sets, small and larger ones, and rare classes."""
