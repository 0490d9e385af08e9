"""Flags with which XLA compiles for the CPU in less time, to programs that run slower."""


def fast_compilation_flags(version: str) -> str:
    """The flags that a version of jaxlib knows. XLA ends the process at a flag that it does not know.

    Args:
        version: such as "0.10.2".
    """
    major_minor = tuple(int(part) for part in version.split(".")[:2])
    flags = ["--xla_cpu_max_isa=AVX"]
    if major_minor < (0, 12):  # from there on, the emitters of fusions are the only ones
        flags.append("--xla_cpu_use_fusion_emitters=false")
    return " ".join(flags)
