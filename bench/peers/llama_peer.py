"""llama.cpp through the C functions that llama-cpp-python exposes: what is timed is llama_decode."""
import ctypes
import pathlib

import llama_cpp
import numpy

import workload

CONTEXT_TOKENS = 2048


class Session:
    """A context for `num_rows` sequences. Flash attention and the type of the KV cache stay at their defaults."""

    def __init__(self, model, threads, num_rows):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max = CONTEXT_TOKENS, num_rows
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(model, params)
        self.num_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self.batch = llama_cpp.llama_batch_init(workload.PREFILL_TOKENS, 0, 1)

    def close(self):
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.context)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def decode(self, entries, watch):
        """entries: (token, position, row, whether logits are wanted). Returns the greedy tokens of those wanted."""
        self.batch.n_tokens = len(entries)
        for i, (token, position, row, wanted) in enumerate(entries):
            self.batch.token[i], self.batch.pos[i] = token, position
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, row
            self.batch.logits[i] = wanted
        with watch:
            status = llama_cpp.llama_decode(self.context, self.batch)
            llama_cpp.llama_synchronize(self.context)
        assert status == 0, f"llama_decode returned {status}"
        return [self.greedy(i) for i, entry in enumerate(entries) if entry[3]]

    def greedy(self, i):
        logits = ctypes.cast(llama_cpp.llama_get_logits_ith(self.context, i), ctypes.POINTER(ctypes.c_float))
        return int(numpy.ctypeslib.as_array(logits, (self.num_vocab,)).argmax())

    def prefill(self, row, ids, watch, sequence):
        last = len(ids) - 1
        return self.decode([(token, i, sequence, i == last) for i, token in enumerate(ids)], watch)[0]

    def use(self, adapter):
        """Adds an adapter's deltas to all rows: llama.cpp has one set of adapters for a whole batch."""
        adapters, scales = (llama_cpp.llama_adapter_lora_p_ctypes * 1)(adapter), (ctypes.c_float * 1)(1.0)
        status = llama_cpp.llama_set_adapters_lora(self.context, adapters, 1, scales)
        assert status == 0, f"llama_set_adapters_lora returned {status}"

    def generate(self, rows, num_tokens):
        """Decodes the rows in one batch, one token each a step; (tokens, seconds) of the steps."""
        self.clear()
        ids = {row: workload.prompt_ids(row, workload.PROMPT_TOKENS) for row in rows}
        tokens = [self.prefill(row, ids[row], workload.Stopwatch(), i) for i, row in enumerate(rows)]
        watch = workload.Stopwatch()
        for step in range(num_tokens):
            position = workload.PROMPT_TOKENS + step
            tokens = self.decode([(token, position, i, True) for i, token in enumerate(tokens)], watch)
        return len(rows) * num_tokens, watch.seconds


def load_adapters(model, folder):
    """The adapters of folder/*/adapter.gguf; they go away with the model."""
    paths = sorted(pathlib.Path(folder).glob("*/adapter.gguf"))
    assert len(paths) == workload.NUM_ROWS, f"{folder} holds {len(paths)} adapters, expected {workload.NUM_ROWS}"
    adapters = [llama_cpp.llama_adapter_lora_init(model, str(path).encode()) for path in paths]
    assert all(adapters), f"llama.cpp cannot read an adapter of {folder}"
    return adapters


def measure(model_path, threads, num_samples, num_tokens, adapters_folder=None):
    """{name: samples in tokens/s}. With a folder of adapters, row after row has its own, else none."""
    llama_cpp.llama_backend_init()
    llama_cpp.llama_log_set(QUIET, None)
    model = llama_cpp.llama_model_load_from_file(model_path.encode(), llama_cpp.llama_model_default_params())
    all_rows = range(workload.NUM_ROWS)
    adapters = load_adapters(model, adapters_folder) if adapters_folder else []
    one, eight = Session(model, threads, 1), Session(model, threads, workload.NUM_ROWS)

    def row_alone(row):
        if adapters:
            one.use(adapters[row])
        return one.generate([row], num_tokens)

    def one_after_another():
        parts = [row_alone(row) for row in all_rows]
        return sum(tokens for tokens, _ in parts), sum(seconds for _, seconds in parts)

    def prefill():
        one.clear()
        watch = workload.Stopwatch()
        one.prefill(0, workload.prompt_ids(0, workload.PREFILL_TOKENS), watch, 0)
        return workload.PREFILL_TOKENS, watch.seconds

    results = {
        "llama.cpp/decode_1_row": workload.samples_of(lambda: one.generate([0], num_tokens), num_samples),
        "llama.cpp/decode_8_rows": workload.samples_of(lambda: eight.generate(all_rows, num_tokens), num_samples),
        "llama.cpp/prefill_512": workload.samples_of(prefill, num_samples)}
    slow = "llama.cpp/decode_8_rows_8_adapters_one_after_another" if adapters else "llama.cpp/decode_8_rows_one_after_another"
    results[slow] = workload.samples_of(one_after_another, num_samples)  # last: it leaves an adapter in the context
    one.close()
    eight.close()
    llama_cpp.llama_model_free(model)
    return results


def versions():
    return {"llama-cpp-python": llama_cpp.__version__,
            "llama.cpp": "from source, GGML_NATIVE: " + llama_cpp.llama_print_system_info().decode().strip(" |\n")}


@llama_cpp.llama_log_callback
def QUIET(level, text, user_data):
    """llama.cpp tells a lot while loading."""
