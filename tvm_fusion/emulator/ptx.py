"""Inline PTX: each ``asm`` statement becomes a call of a function in ``runtime/ptx.h``.

TVM emits few kinds: asynchronous copies, ldmatrix and mma. An instruction that is not known here
fails when it is reached, naming the instruction.
"""

from __future__ import annotations

import re

_ASM = re.compile(r"\b(?:asm|__asm__)\s*(?:volatile|__volatile__)?\s*\(")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_OPERAND = re.compile(r'\s*"[^"]*"\s*\((.*)\)\s*$', re.DOTALL)

_COPY = re.compile(
    r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?:\.\S+)? \[%0\], \[%1\], (%2|\d+)(, %3)?;?$"
)
_WAIT = re.compile(r"cp\.async\.wait_group (\d+|%0);?$")
_LOAD = re.compile(r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared(?:::cta)?\.b16")
_MULTIPLY = re.compile(
    r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col(?:\.satfinite)?\.(\w+)\.(\w+)\.(\w+)\.(\w+)"
)

#: C++ types and bits of PTX element types.
_ELEMENTS = {
    "f16": ("half", 16), "bf16": ("nv_bfloat16", 16), "tf32": ("float", 32), "f32": ("float", 32),
    "s32": ("int", 32), "s8": ("signed char", 8), "u8": ("unsigned char", 8),
    "e4m3": ("__nv_fp8_e4m3", 8), "e5m2": ("__nv_fp8_e5m2", 8),
}  # fmt: skip


def rewrite_ptx(source: str) -> str:
    """Replace every ``asm`` statement of a source, keeping its lines.

    Parameters
    ----------
    source : str
        CUDA C++.

    Returns
    -------
    str
    """
    pieces = []
    position = 0
    while (found := _ASM.search(source, position)) is not None:
        if source[source.rfind("\n", 0, found.start()) + 1 : found.start()].lstrip()[:1] == "#":
            pieces.append(source[position : found.end()])  # "#define asm ...": no statement
            position = found.end()
            continue
        close = _closing(source, found.end())
        end = source.index(";", close) + 1
        statement = source[found.start() : end]
        pieces.append(source[position : found.start()])
        pieces.append(_call(source[found.end() : close]) + "\n" * statement.count("\n"))
        position = end
    return "".join(pieces) + source[position:]


def _closing(source: str, position: int) -> int:
    """Where the parenthesis closes that was opened just before ``position``."""
    depth = 1
    quoted = False
    while True:
        char = source[position]
        if char == '"' and source[position - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (char == "(") - (char == ")")
            if depth == 0:
                return position
        position += 1


def _split(text: str, separator: str) -> list[str]:
    """Split outside of strings and brackets."""
    parts = [""]
    depth = 0
    quoted = False
    for index, char in enumerate(text):
        if char == '"' and text[index - 1] != "\\":
            quoted = not quoted
        if not quoted:
            depth += (char in "([{") - (char in ")]}")
            if char == separator and depth == 0:
                parts.append("")
                continue
        parts[-1] += char
    return parts


def _operands(part: str) -> list[str]:
    matches = (_OPERAND.match(operand) for operand in _split(part, ","))
    return [match[1].replace("\n", " ") for match in matches if match]


def _call(body: str) -> str:
    """The call that stands for the inside of one asm statement."""
    parts = [*_split(body, ":"), "", "", ""]
    text = "".join(_STRING.findall(parts[0])).replace("\\n", " ").replace("\\t", " ").strip()
    text = re.sub(r"\s+", " ", text)
    outputs, inputs = _operands(parts[1]), _operands(parts[2])
    if match := _COPY.match(text):
        size = inputs[2] if match[1] == "%2" else match[1]
        read = inputs[3] if match[2] else size
        to, source = inputs[0], f"(const void*)({inputs[1]})"
        return f"emulator::copy_async(__LINE__, {to}, {source}, {size}, {read});"
    if re.match(r"cp\.async\.commit_group;?$", text):
        return "emulator_copy_commit();"
    if match := _WAIT.match(text):
        return f"emulator_copy_wait({inputs[0] if match[1] == '%0' else match[1]});"
    if re.match(r"cp\.async\.wait_all;?$", text):
        return "emulator_copy_commit(); emulator_copy_wait(0);"
    if match := _LOAD.match(text):
        pointers = ", ".join(f"&({name})" for name in outputs)
        kind = f"{match[1]}, {'true' if match[2] else 'false'}"
        return f"emulator::load_matrix<{kind}>(__LINE__, {inputs[0]}, {{{pointers}}});"
    if (match := _MULTIPLY.match(text)) and all(match[i] in _ELEMENTS for i in range(2, 5)):
        return _multiply(match, outputs, inputs)
    name = text.split(" ")[0].replace('"', "")[:80]
    return f'emulator_fail(__LINE__, "the emulator does not support the PTX instruction {name}");'


def _multiply(match: re.Match[str], outputs: list[str], inputs: list[str]) -> str:
    k = int(match[1])
    (d, _), (a, a_bits), (b, b_bits) = (_ELEMENTS[match[i]] for i in (2, 3, 4))
    count_a, count_b = 16 * k * a_bits // 1024, 8 * k * b_bits // 1024
    register = "unsigned" if match[2] == "f16" else d
    count_c = len(outputs)
    in_a, in_b = ", ".join(inputs[:count_a]), ", ".join(inputs[count_a : count_a + count_b])
    in_c = ", ".join(inputs[count_a + count_b : count_a + count_b + count_c])
    pointers = ", ".join(f"&({name})" for name in outputs)
    return (
        f"{{ const unsigned a_[] = {{{in_a}}}; const unsigned b_[] = {{{in_b}}}; "
        f"const {register} c_[] = {{{in_c}}}; "
        f"emulator::multiply<{k}, {a}, {b}, {d}, {register}, {count_a}, {count_b}, {count_c}>"
        f"(__LINE__, {{{pointers}}}, a_, b_, c_); }}"
    )
