from plugrad.testing.collective_suite import *
