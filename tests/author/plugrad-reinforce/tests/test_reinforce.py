from plugrad.testing.algorithm_suite import *
