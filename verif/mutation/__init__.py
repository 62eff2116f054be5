"""Single faults put into the hardware on purpose, each with the test that must see it.

``catalogue.py`` lists them; ``python -m verif.mutation`` applies them one by one to a copy of ``hw`` and runs the test
named for each, which must fail. A mutation that survives is a hole in the tests.
"""
