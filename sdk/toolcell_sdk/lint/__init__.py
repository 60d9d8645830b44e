"""stub for the moment"""
class LintError(Exception): ...
class Finding: severity="warning"
def lint_project(p): return []
