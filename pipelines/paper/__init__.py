"""The paper's comparison: data sets x methods x criteria. Each method and each data set is one file."""
