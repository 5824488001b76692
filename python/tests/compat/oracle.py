"""What the drop-in modules have to give, in plain NumPy from the formulas of the interfaces.

Everything is computed in float64 (integers in Python's own), loop by loop, and shares nothing with
the library. Functions take and return NumPy arrays and change none of their arguments.
"""

import numpy as np

# Bits of the significand, the hidden one included.
PRECISION = {"f32": 24, "f16": 11, "bf16": 8}
SMALLEST = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}


class Sum:
    """A sum of products, and what bounds its error: the number of terms and their magnitudes.

    `kept` masks the rows that are not written; their values have to stay as they are.
    """

    def __init__(self, value, magnitude, terms, kept=()):
        self.value, self.magnitude, self.terms, self.kept = value, magnitude, terms, kept

    def check(self, got, dtype):
        """`got` is the sum taken in f32 in any order and rounded once to `dtype`."""
        once = 2.0 ** -PRECISION[dtype] * np.abs(self.value) + SMALLEST[dtype]
        sums = 2.0**-24 * (self.terms + 4) * self.magnitude
        limit = 1.001 * (once + sums)
        if len(self.kept):
            limit[self.kept] = 0
        wrong = ~(np.abs(got - self.value) <= limit)  # True of NaN, too
        assert not wrong.any(), (
            f"{wrong.sum()} of {wrong.size} differ, the first at {np.argwhere(wrong)[0]}: "
            f"{got[wrong][0]} for {self.value[wrong][0]}"
        )


def product_of_rows(y, x, weight_of_row, scale=1.0, accumulate=True):
    """y[t] = (y[t] +) scale * W x[t], W = weight_of_row[t] [out, in]; None leaves the row alone."""
    value, magnitude = y.astype(np.float64), np.abs(y.astype(np.float64))
    for row, weight in enumerate(weight_of_row):
        if weight is None:
            continue
        delta = scale * (weight @ x[row])
        bound = abs(scale) * (np.abs(weight) @ np.abs(x[row]))
        value[row] = value[row] + delta if accumulate else delta
        magnitude[row] = magnitude[row] + bound if accumulate else bound
    return Sum(value, magnitude, x.shape[1], np.array([w is None for w in weight_of_row], bool))


def weights_by_id(num_rows, ids, weights):
    """The weight of each row; None for an id that names no adapter, or one without weights."""
    return [
        weights[i] if 0 <= i < len(weights) else None
        for i in [int(ids[t]) for t in range(num_rows)]
    ]


def weights_by_segment(num_rows, starts, ends, weights):
    """Row t belongs to the segment s with starts[s] <= t < ends[s]."""
    of_row = [None] * num_rows
    for start, end, weight in zip(starts, ends, weights):
        for row in range(max(0, int(start)), min(num_rows, int(end))):
            of_row[row] = weight
    return of_row


def kv_length(pages, last, page_size):
    return (len(pages) - 1) * page_size + int(last) if len(pages) else 0


def pages_of(i, kv_indptr):
    return range(int(kv_indptr[i]), int(kv_indptr[i + 1]))


def init_kv(pages, kv_indptr, last_page_offset, k, v, seqlen_indptr, layer, page_size):
    """pages [number, layers, 2, heads, page_size, head_dim]; new tokens fill a request's tail."""
    pages = pages.copy()
    for i, last in enumerate(last_page_offset):
        mine = pages_of(i, kv_indptr)
        first, end = int(seqlen_indptr[i]), int(seqlen_indptr[i + 1])
        length = kv_length(mine, last, page_size)
        for row in range(first, end):
            position = length - (end - first) + (row - first)
            if position < 0:
                continue
            page, slot = mine[position // page_size], position % page_size
            pages[page, layer, 0, :, slot] = k[row]
            pages[page, layer, 1, :, slot] = v[row]
    return pages


def rotate(x, position, theta=1e4, scale=1.0, rotary_dim=None):
    """Rotates pairs (d, d + n / 2) of the first n = rotary_dim elements of the last axis."""
    n = rotary_dim or x.shape[-1]
    angle = position / scale * theta ** (-2.0 * np.arange(n // 2) / n)
    low, high = x[..., : n // 2], x[..., n // 2 : n]
    turned = [
        low * np.cos(angle) - high * np.sin(angle),
        high * np.cos(angle) + low * np.sin(angle),
    ]
    return np.concatenate([*turned, x[..., n:]], axis=-1)


def attention(o, q, qo_indptr, pages, kv_indptr, last_page_offset, layer, page_size, **options):
    """(o, lse) of batch_prefill; rows of no request keep their o, and their lse is NaN."""
    rope = options.get("rope", "llama")
    turn = [
        options.get("rope_theta", 1e4),
        options.get("rope_scale", 1.0),
        options.get("rotary_dim"),
    ]
    scale = options.get("sm_scale") or q.shape[-1] ** -0.5
    causal, window = options.get("causal", True), options.get("window_left", -1)
    cap = options.get("logits_soft_cap", 0.0)
    o, lse = o.astype(np.float64), np.full(q.shape[:2], np.nan)
    group = q.shape[1] // pages.shape[3]
    for i, last in enumerate(last_page_offset):
        mine = pages_of(i, kv_indptr)
        first, end = int(qo_indptr[i]), int(qo_indptr[i + 1])
        length = kv_length(mine, last, page_size)
        keys = [pages[mine[j // page_size], layer, 0, :, j % page_size] for j in range(length)]
        values = [pages[mine[j // page_size], layer, 1, :, j % page_size] for j in range(length)]
        if rope == "llama":
            keys = [rotate(key, j, *turn) for j, key in enumerate(keys)]
        for row in range(first, end):
            position = row - first + length - (end - first)
            for h in range(q.shape[1]):
                query = rotate(q[row, h], position, *turn) if rope == "llama" else q[row, h]
                seen = [
                    j
                    for j in range(length)
                    if (not causal or j <= position) and (window < 0 or j >= position - window)
                ]
                if not seen:
                    o[row, h], lse[row, h] = 0.0, -np.inf
                    continue
                s = np.array([scale * (query @ keys[j][h // group]) for j in seen])
                s = cap * np.tanh(s / cap) if cap > 0 else s
                p = np.exp(s - s.max())
                o[row, h] = sum(w * values[j][h // group] for w, j in zip(p / p.sum(), seen))
                lse[row, h] = s.max() + np.log(p.sum())
    return o, lse


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def block_tables_to_padded(cu_seqlen, tables, ragged):
    tables = tables.copy()
    for i in range(len(tables)):
        start, length = int(cu_seqlen[i]), int(cu_seqlen[i + 1]) - int(cu_seqlen[i])
        for j in range(min(length, tables.shape[1])):
            tables[i, j] = ragged[start + j]
    return tables


def block_tables_to_ragged(tables, input_lengths, cache_lengths):
    lengths = [int(n) + int(c) for n, c in zip(input_lengths, cache_lengths)]
    return np.array([tables[i, j] for i, n in enumerate(lengths) for j in range(n)], np.int32)


def copy_next_input_ids(
    all_ids, cache_lengths, input_lengths, prompt_lengths, next_ids, cu_accepted
):
    all_ids = all_ids.copy()
    for i in range(len(all_ids)):
        for n, j in enumerate(range(int(cu_accepted[i]), int(cu_accepted[i + 1]))):
            position = int(cache_lengths[i]) + int(input_lengths[i]) + n
            if position >= prompt_lengths[i]:
                all_ids[i, position] = next_ids[j]
    return all_ids


def position_slot_ids(cache_lengths, cu_seqlen, cu_slots, position_ids, slot_indices):
    position_ids, slot_indices = position_ids.copy(), slot_indices.copy()
    for i, cache in enumerate(cache_lengths):
        for n, j in enumerate(range(int(cu_seqlen[i]), int(cu_seqlen[i + 1]))):
            position_ids[j] = int(cache) + n
            slot_indices[j] = int(cu_slots[i]) + int(cache) + n
    return position_ids, slot_indices


def slots_filtering(slots, filtered, cu_slots, slots_start):
    filtered = filtered.copy()
    for i, start in enumerate(slots_start):
        for n, j in enumerate(range(int(cu_slots[i]), int(cu_slots[i + 1]))):
            filtered[j] = slots[int(start) + n]
    return filtered


def rewind(
    accepted, prefill, offset, length, count, last_id, table, num_drafts, block_size, active
):
    """One token at a time is taken off, so that any number of blocks can be crossed."""
    offset, length, count, last_id, table = (
        a.copy() for a in (offset, length, count, last_id, table)
    )
    release, mask = np.zeros_like(last_id), np.zeros(len(accepted), bool)
    for i in range(active):
        release[i] = last_id[i]
        if prefill[i] == 1:
            continue
        for _ in range(num_drafts - min(max(int(accepted[i]), 0), num_drafts)):
            length[i] -= 1
            offset[i] -= 1
            if offset[i] >= 0:
                continue
            offset[i], mask[i] = block_size - 1, True
            count[i] = max(count[i] - 1, 0)
            table[i, min(int(count[i]), table.shape[1] - 1)] = -1
            last_id[i] = table[i, count[i] - 1] if count[i] > 0 else -1
    return offset, length, count, last_id, table, release, mask


def verify(tokens, output, num_decode, num_prefill, num_drafts):
    mask, last_one = np.zeros(len(tokens), bool), []
    for p in range(num_decode):
        base = p * (num_drafts + 1)
        accepted = 0
        while accepted < num_drafts and tokens[base + accepted + 1] == output[base + accepted]:
            accepted += 1
        mask[base : base + accepted + 1] = True
        last_one.append(base + accepted)
    for p in range(num_prefill):
        last_one.append(num_decode * (num_drafts + 1) + p)
        mask[last_one[-1]] = True
    return np.array(last_one, np.int64), mask


def prepare_next(
    num_decode,
    output,
    logit_indices,
    last_one,
    mask,
    tokens,
    sampled,
    last_seq,
    accepted,
    counts,
    num_drafts,
):
    sampled, last_seq, accepted, counts = (a.copy() for a in (sampled, last_seq, accepted, counts))
    for p, last in enumerate(last_one):
        sampled[p] = output[last] if last >= 0 else -1
        last_seq[p] = logit_indices[last] if last >= 0 else -1
        if p >= num_decode:
            continue
        drafts = [p * (num_drafts + 1) + 1 + s for s in range(num_drafts)]
        taken = [last >= 0 and bool(mask[d]) for d in drafts]
        accepted[p, :num_drafts] = [tokens[d] if yes else -1 for d, yes in zip(drafts, taken)]
        counts[p] = sum(taken)
    return sampled, last_seq, accepted, counts


def mamba_copy(intermediate, current, prefill, slots, accepted, num_layers):
    current = current.copy()
    for i, slot in enumerate(slots):
        if prefill[i] == 1 or slot < 0:
            continue
        for layer in range(num_layers):
            step = min(max(int(accepted[i]), 0), intermediate.shape[2] - 1)
            current[layer, slot] = intermediate[layer, slot, step]
    return current
