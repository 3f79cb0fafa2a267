from plugrad.testing.backend_suite import *
