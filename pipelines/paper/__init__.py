"""The paper's comparison: data sets x methods x criteria. A method or a data set is one file in its folder."""
