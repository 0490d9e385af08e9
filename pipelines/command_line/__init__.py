"""Command lines from typed functions: options, files of options, one-line errors, and completions of shells."""
