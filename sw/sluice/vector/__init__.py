"""Programs of passes and matmuls (softmax, norms, attention, ...) as microcode of chips with floating-point lanes.

>>> program = compile_program(transformer.softmax("x", "y"), {"x": (4, 100)}, config)
>>> results, report = program.run(device, {"x": x})
"""

from .run import VectorProgram, compile_program
from .values import Tensor

__all__ = ["Tensor", "VectorProgram", "compile_program"]
