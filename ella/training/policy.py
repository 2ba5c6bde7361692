"""placeholder, replaced at the merge"""

from ella.runs.policies import *
