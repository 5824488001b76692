#ifndef HEDDLE_C_ENGINE_H_
#define HEDDLE_C_ENGINE_H_

/* heddle's engine for C and other languages: one model with many LoRA adapters, requests in, events
 * out. C11, and C++ from 11 on; library heddle_c_engine. It needs nothing of heddle/c_api.h, whose
 * operations are a library of their own; a program may use both.
 *
 * - An engine has a thread of its own that runs the steps: nothing has to be called for an answer
 *   to go on.
 * - Strings that go in are heddle_string: a pointer and a number of bytes, UTF-8, read during the
 *   call alone; a NUL byte at the end is not needed. {NULL, 0} is a string that is not given. Names
 *   have at most 1,024 bytes, paths 4,096, all others 1 GiB. Strings that come out have their
 *   length besides, and a NUL byte at the end.
 * - A function returns HEDDLE_OK or what went wrong; the message is heddle_engine_last_error(). No
 *   C++ exception ever leaves. A request that cannot run is submitted too, and ends with an
 *   error of its own: its last event has the sentence and the code.
 * - Options and requests are structs with an init function that gives every field its default; call
 *   it first. A struct and the number in the library's file name change with that of the ABI.
 *
 * Threads. All functions of one engine may be called from any threads, also at the same time, but
 * for heddle_engine_destroy: when it is called, no other call of the engine may be running, and
 * none may follow. What waits: _create (loads the model), _add_adapter, _switch_adapter,
 * _remove_adapter, _has_adapter, _get_load and _get_stats, each until the step that is at work has
 * ended and what came before it is done; _poll, for the time it is given; _destroy, until the
 * thread has ended. _submit, _cancel and _reset_prefix_cache return at once. A request that was
 * submitted before a call of _add_adapter or _remove_adapter uses the adapters of before, whether
 * or not it runs by then; but a callback that calls these acts at once, before requests that the
 * engine has not looked at yet.
 *
 * A request's tokens and log-probabilities do not depend on what runs concurrently, nor on threads,
 * pages or chunks. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heddle/c_engine_parts.h"
#include "heddle/c_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version, errors ------------------------------------------------------------------------- */

#define HEDDLE_ENGINE_ABI_VERSION 15

/* HEDDLE_ENGINE_ABI_VERSION of the loaded library; it fits this header when both are equal. */
int32_t heddle_engine_abi_version(void);

/* The library's version, "major.minor.patch". */
const char* heddle_engine_version(void);

/* The message of the last call of this thread that failed, "" when none has; stays valid until the
   next failure. */
const char* heddle_engine_last_error(void);

/* ---- Engines --------------------------------------------------------------------------------- */

typedef struct heddle_engine heddle_engine;

/* What heddle::EngineOptions says of each. */
typedef struct heddle_engine_options {
  heddle_string device;   /* {NULL, 0}: a GPU where one is found; "cpu", "cuda", "cuda:1" */
  int32_t max_batch;      /* 16: rows that run at once */
  int32_t num_threads;    /* 0: one per processor */
  int32_t page_size;      /* 16: tokens in a page of the KV cache */
  int32_t prefill_chunk;  /* 0: 512, on a GPU 2048; most prompt tokens that a step prefills */
  int64_t max_context;    /* 0: what the model was made for; tokens of one row, prompt and answer */
  int64_t kv_memory;      /* 0: half of the memory that is available; bytes of the KV cache */
  bool prefix_cache;      /* true; requests take keys and values that an earlier one began with */
  int64_t kv_host_memory; /* -1: on a GPU a quarter of what is available; host memory for pages */
  heddle_string kv_cache_dir; /* {NULL, 0}: none; a folder in which its pages outlive the engine */
  int64_t kv_disk_memory;     /* 0: a quarter of the disk that is free; bytes of that folder */
  bool kv_disk_salted;        /* false; true: pages of requests with a salt go there, too */
  heddle_string admit;        /* {NULL, 0}: "now"; "longest": no request is ever parked */
  heddle_string fairness;     /* {NULL, 0}: "off"; "adapter", "tenant": who shares the engine */
  heddle_string kv_type;      /* {NULL, 0}: "f32", on a GPU as activations; "f16", "bf16", "fp8" */
  heddle_string weights;      /* {NULL, 0}: as they are stored; "q8_0", ...: packed when loaded */
  heddle_string activations;  /* {NULL, 0}: "f32"; "int8": products round what they read, CPU */
  heddle_speculation speculation;
  /* {NULL, 0}: none; a folder of adapters that are found by name when a request first names them */
  heddle_string adapter_dir;
  int64_t adapter_memory; /* 0: with adapter_dir a quarter of what is available, else no limit */
  int64_t adapter_host_memory;     /* 0: on a GPU a quarter of what is available; on the CPU none */
  int64_t max_batch_adapters;      /* 0: no bound; adapters of the rows that run at once */
  int64_t max_batch_adapter_bytes; /* 0: no bound; bytes of their weights */
  /* {NULL, 0}: "auto", the model's own files; "none"; or a generation_config.json or its folder:
     what heddle_engine_apply_defaults gives */
  heddle_string generation_config;
  /* NULL; called by the thread that creates the engine while it reads the model. */
  void (*on_load)(void* user_data, int64_t done_bytes, int64_t total_bytes);
  void* user_data; /* NULL; goes to on_load and on_warning */
  bool strict;     /* false; true: what on_warning is called with is an error */
  /* NULL; called with what is odd, one sentence each: about the model's files by the thread that
     creates the engine, about an adapter that is added in that call, about one of adapter_dir by
     the thread that checks requests when it is found there anew. It must not call the engine.
     `warning` lives until it returns. */
  void (*on_warning)(void* user_data, heddle_string warning);
} heddle_engine_options;
void heddle_engine_options_init(heddle_engine_options* options);

/* Loads a model: a GGUF file, a folder that transformers saved, or a name in the local Hugging Face
   cache. options NULL: the defaults. *engine is NULL where it fails. */
heddle_status heddle_engine_create(heddle_engine** engine, heddle_string model,
                                   const heddle_engine_options* options);
/* Cancels what is unfinished, tells the ends to the callbacks, and frees the engine; NULL is fine.
   Not to be called by a callback. Events that were taken from _poll stay valid. */
void heddle_engine_destroy(heddle_engine* engine);

/* Facts of the model; the strings live as long as the engine. */
typedef struct heddle_engine_model {
  heddle_string path, name, architecture;
  int64_t num_layers, hidden_size, vocab_size, num_parameters, weight_bytes;
  int64_t max_context;       /* tokens of one row in this engine */
  int64_t kv_memory;         /* bytes of the KV cache */
  heddle_string device;      /* where it runs: "cpu", "cuda:0" */
  heddle_string device_name; /* of the GPU, "NVIDIA H200"; empty on the CPU */
  heddle_string activations; /* what products and attention read and write: "f32", "f16", "bf16" */
} heddle_engine_model;
heddle_status heddle_engine_get_model(heddle_engine* engine, heddle_engine_model* model);

/* How much there is to do, and how full the KV cache is. */
typedef struct heddle_engine_load {
  int64_t num_waiting, num_running;    /* requests */
  int64_t num_pages, num_free_pages;   /* of the KV cache; free: reserved for no request */
  int64_t num_cached_pages;            /* of the free ones: the prefix cache has them */
  int64_t num_host_pages;              /* in host memory, of a GPU's engine */
  int64_t num_disk_pages;              /* in kv_cache_dir */
  int64_t num_parked;                  /* of the waiting requests: those that were parked */
  int64_t num_adapters, adapter_bytes; /* whose weights are in memory */
} heddle_engine_load;
heddle_status heddle_engine_get_load(heddle_engine* engine, heddle_engine_load* load);

/* What the engine has done since it was created, and where the time has gone, in seconds. A step
   that has prompt tokens counts as prefill. */
typedef struct heddle_engine_stats {
  double prefill_seconds, decode_seconds;
  double lora_seconds;      /* part of both */
  int64_t prefill_tokens;   /* prompt tokens computed */
  int64_t decode_tokens;    /* tokens drawn in decode steps */
  int64_t generated_tokens; /* tokens drawn in all steps */
  int64_t prefill_steps, decode_steps;
  double wait_seconds; /* part of both: the host waited for the device */
  /* On a GPU, of steps that overlap: the device computed, and was idle between two of them. */
  double device_seconds, device_gap_seconds;
  int64_t graphs;            /* on a GPU: CUDA graphs of decode steps that were recorded */
  double graph_seconds;      /* that it took, part of decode_seconds */
  int64_t adapter_uses;      /* adapters of requests that started */
  int64_t adapter_loads;     /* adapters whose weights became resident, each time */
  int64_t adapter_reads;     /* of these, or of copies in host memory, from files */
  double adapter_seconds;    /* that it took, concurrently with steps */
  int64_t adapter_evictions; /* adapters that were evicted for others */
  /* Of requests that may take keys and values from the prefix cache: tokens of their prompts, and
     those of them that they took. A request that was parked counts each time that it starts. */
  int64_t prefix_tokens, cached_tokens;
  int64_t host_tokens;        /* whose keys and values came from host memory of a GPU's engine */
  int64_t disk_tokens;        /* whose keys and values were read from kv_cache_dir */
  int64_t parkings;           /* times that a request was parked */
  heddle_draft_counts drafts; /* those that were accepted are part of generated_tokens */
  heddle_draft_stats draft_stats;
} heddle_engine_stats;
heddle_status heddle_engine_get_stats(heddle_engine* engine, heddle_engine_stats* stats);

/* Forgets what the prefix cache has. Requests that run keep what they took. */
heddle_status heddle_engine_reset_prefix_cache(heddle_engine* engine);

/* ---- Adapters -------------------------------------------------------------------------------- */

/* Loads a LoRA adapter: the folder that PEFT saves, or a GGUF file of llama.cpp. Rows that run wait
   for it. `replace`: where the name is taken, the new one takes its place at once for all requests
   that follow; those that were submitted before end with the weights that they began with. Without
   it a name that is taken is an error. Where it fails the adapters stay as they were. */
heddle_status heddle_engine_add_adapter(heddle_engine* engine, heddle_string name,
                                        heddle_string folder, bool replace);
/* Loads an adapter from memory, as PEFT saves it: the text of its adapter_config.json, and the
   bytes of its adapter_model.safetensors [num_bytes], which are copied. Tokenizer and chat template
   are the model's. Requests that run go on meanwhile: they wait for none of this but a step.
   `switch_running`, with `replace` alone: requests go on with it as in _switch_adapter. */
heddle_status heddle_engine_load_adapter(heddle_engine* engine, heddle_string name,
                                         heddle_string config_json, const void* safetensors,
                                         size_t num_bytes, bool replace, bool switch_running);
/* As _add_adapter with `replace`, but requests of the name go on with the new weights: those that
   wait begin with them, those that run keep their keys and values and compute their next token with
   them; heddle_engine_event.adapter_switches says which. Where tokenizer, end tokens, vocabulary or
   invocation tokens are others than those of the adapter that has the name, it is an error. */
heddle_status heddle_engine_switch_adapter(heddle_engine* engine, heddle_string name,
                                           heddle_string folder);
/* From here on so many older versions of the name, 0 to 64, stay when it is replaced, which
   requests may name as "NAME@VERSION"; versions are counted from 1. */
heddle_status heddle_engine_keep_versions(heddle_engine* engine, heddle_string name, int32_t count);
/* The name stands for an older version again, one that was kept. `switch_running`: requests go on
   with it as in _switch_adapter; else they end with the weights that they began with. */
heddle_status heddle_engine_roll_back_adapter(heddle_engine* engine, heddle_string name,
                                              int64_t version, bool switch_running);
/* The name is unknown to requests that follow; those that were submitted before end with the
   adapter, whose memory is free when the last of them has ended. HEDDLE_INVALID_ARGUMENT where
   there is none of that name. */
heddle_status heddle_engine_remove_adapter(heddle_engine* engine, heddle_string name);
heddle_status heddle_engine_has_adapter(heddle_engine* engine, heddle_string name, bool* has);

/* What an adapter changes at one place of the model. */
typedef struct heddle_engine_site {
  heddle_string module; /* "model.layers.3.self_attn.q_proj", "embed_tokens", "lm_head" */
  heddle_string kind;   /* "lora", "dora", "weight" or "rows" */
  int64_t rank;         /* of "lora" and "dora" */
  float scale;
  heddle_string dtype;          /* "f32", "f16" or "bf16" */
  double delta_norm, base_norm; /* Frobenius norms; NaN: not computed */
} heddle_engine_site;

/* What came of an adapter that was loaded: docs/adapter_receipts.md. */
typedef struct heddle_engine_receipt {
  heddle_string digest; /* 32 hexadecimal digits: XXH3-128 of its content */
  int64_t tensors_given, tensors_applied;
  const heddle_engine_site* sites; /* [num_sites] */
  size_t num_sites;
  double delta_norm, base_norm; /* of all sites; NaN: not computed */
  bool is_zero;                 /* it changes nothing, as before any training */
  heddle_string summary;        /* one line */
} heddle_engine_receipt;

/* The receipt of the adapter that has the name, for heddle_engine_receipt_destroy. `with_norms`:
   waits until they are computed. HEDDLE_INVALID_ARGUMENT for one of adapter_dir that no request has
   named yet, and, of these, where norms are asked for whose files have changed. It does not wait
   for a step. */
heddle_status heddle_engine_adapter_receipt(heddle_engine* engine, heddle_string name,
                                            bool with_norms, heddle_engine_receipt** receipt);
void heddle_engine_receipt_destroy(heddle_engine_receipt* receipt); /* NULL: nothing happens */

/* ---- Events ---------------------------------------------------------------------------------- */

typedef int32_t heddle_finish_reason;
enum {
  HEDDLE_FINISH_NONE = 0,     /* the request goes on */
  HEDDLE_FINISH_STOP = 1,     /* end token or stop string */
  HEDDLE_FINISH_LENGTH = 2,   /* max_tokens or the context's end */
  HEDDLE_FINISH_ERROR = 3,    /* it cannot run, or go on; `error` says why */
  HEDDLE_FINISH_CANCELLED = 4 /* heddle_engine_cancel, heddle_engine_destroy */
};

/* The kind of an error of a request, for programs; people read its sentence. */
typedef int32_t heddle_request_error;
enum {
  HEDDLE_ERROR_NONE = 0,             /* it did not end with HEDDLE_FINISH_ERROR */
  HEDDLE_ERROR_INVALID_ARGUMENT = 1, /* it is wrong, or its adapter cannot be read */
  HEDDLE_ERROR_UNSUPPORTED = 2,      /* nothing is wrong with it, but heddle does not have it */
  HEDDLE_ERROR_UNKNOWN_ADAPTER = 3,  /* no adapter has the name */
  HEDDLE_ERROR_OUT_OF_MEMORY = 4,    /* for the row, or there is never room for its adapters */
  HEDDLE_ERROR_ENGINE_ENDED = 5,     /* the GPU has failed: all later requests end so, too */
  HEDDLE_ERROR_NOT_FINITE = 6        /* its logits are no numbers: model or adapter is damaged */
};

/* Where a request went on with other weights of its adapter. */
typedef struct heddle_adapter_switch {
  int64_t position; /* of prompt and answer the first token that was computed with them */
  int64_t token;    /* of the answer the first that was drawn with them */
} heddle_adapter_switch;

/* News of a request. Every request has exactly one event whose finish_reason is not
   HEDDLE_FINISH_NONE, its last; the fields after it are empty in all others. */
typedef struct heddle_engine_event {
  int64_t request;
  heddle_string text; /* what has become final since the last event: whole characters, UTF-8 */
  heddle_finish_reason finish_reason;
  heddle_string answer;     /* all of the text, without end token and stop string */
  const int32_t* token_ids; /* [num_tokens] of the answer, without the end token */
  const float* logprobs;    /* [num_tokens] natural log of each token's probability */
  size_t num_tokens;
  /* With top_logprobs k: [num_tokens * k], for each place k tokens, the most likely first. */
  const int32_t* top_token_ids;
  const float* top_logprobs;
  size_t num_top_logprobs;
  /* With prompt_logprobs: [prompt_tokens], NaN for the first; with top_logprobs k
     [prompt_tokens * k], -1 and NaN for the first. */
  const float* prompt_logprobs;
  size_t num_prompt_logprobs;
  const int32_t* prompt_top_token_ids;
  const float* prompt_top_logprobs;
  size_t num_prompt_top_logprobs;
  /* With heddle_wanted_values; of classes also [num_values] labels, NULL: no memory for them. */
  const float* values;
  size_t num_values;
  const heddle_string* labels;
  int64_t prompt_tokens;
  int64_t cached_tokens;          /* of these: the prefix cache had their keys and values */
  heddle_string stop;             /* the stop string that ended the answer */
  int32_t stop_token;             /* the one of stop_token_ids that ended it; -1: none did */
  double wait_seconds;            /* from when it was submitted to when it began to run */
  heddle_draft_counts drafts;     /* those that were accepted are tokens of the answer */
  heddle_draft_counts prediction; /* of these: of heddle_engine_request.prediction */
  heddle_string error;            /* one sentence */
  heddle_request_error error_code;
  heddle_string adapter_digest; /* of the adapter's weights that it ran with, of a list "A+B" */
  const heddle_adapter_switch* adapter_switches; /* [num_adapter_switches] by ascending position */
  size_t num_adapter_switches;
  heddle_string earlier_digests; /* of each, with spaces between: adapter_digest until then */
} heddle_engine_event;

/* Gets the events of one request. Called by the engine's thread between two steps, so that it holds
   up all requests while it works; the event is valid during the call. It may call every function of
   the engine but _poll and _destroy. It must not throw, nor leave by longjmp. */
typedef void (*heddle_engine_callback)(void* user_data, const heddle_engine_event* event);

/* ---- Requests -------------------------------------------------------------------------------- */

/* What heddle::Request says of each. One of the four prompts is given: messages and messages_json
   go through the model's chat template, text and token_ids are taken as they are. */
typedef struct heddle_engine_request {
  const heddle_message* messages; /* NULL */
  size_t num_messages;            /* 0 */
  heddle_string messages_json;    /* as OpenAI clients send them */
  heddle_string text;
  const int32_t* token_ids; /* NULL */
  size_t num_token_ids;     /* 0 */

  heddle_string adapter;     /* {NULL, 0}: the base model */
  int64_t max_tokens;        /* 256 */
  float temperature;         /* 0: the most likely token */
  int32_t top_k;             /* 0: all */
  float top_p;               /* 1: all */
  float min_p;               /* 0: all */
  int64_t seed;              /* 0 */
  const heddle_string* stop; /* NULL; the text ends before the first of these */
  size_t num_stop;           /* 0 */
  bool ignore_end;           /* false; true: the end token does not end the answer */

  /* For conversations alone, JSON. */
  heddle_string tools_json, documents_json, template_kwargs_json;
  bool add_generation_prompt; /* true */

  /* Formulas and order: heddle/engine/request.h, heddle/ops/sampling.h. */
  float repetition_penalty; /* 1: off; above 0; of tokens in prompt and answer, as transformers */
  float presence_penalty;   /* 0: off; -2 to 2; of tokens in the answer, as vLLM */
  float frequency_penalty;  /* 0: off; -2 to 2; for each time a token is in the answer */
  const heddle_token_bias* logit_bias; /* NULL; each token once */
  size_t num_logit_bias;               /* 0 */
  int64_t min_tokens;               /* 0; of the answer, before anything but its length ends it */
  const int32_t* stop_token_ids;    /* NULL; end the answer as the end token does */
  size_t num_stop_token_ids;        /* 0 */
  const heddle_string* bad_words;   /* NULL; words that the answer must not have */
  size_t num_bad_words;             /* 0 */
  const int32_t* allowed_token_ids; /* NULL; none but these are drawn */
  size_t num_allowed_token_ids;     /* 0: all */
  bool include_stop;                /* false; true: the text ends after the stop string */
  bool skip_special_tokens;         /* false; true: control tokens of the answer have no text */
  int64_t truncate_prompt_tokens;   /* 0: all; of the prompt the last so many stay */
  bool continue_final_message;      /* false; true: the answer goes on with the last message */
  int32_t add_special_tokens; /* -1; whether a text's begin and end tokens are added, 0 or 1; -1: to
                                 `text`, not to conversations */
  int32_t top_logprobs;       /* 0, up to 100; the most likely tokens at each place are reported */
  bool prompt_logprobs; /* false; the prompt's tokens get log-probabilities, as with max_tokens 0 */

  /* Instead of adapter: up to 64 that act together, each times its scale; also one with a scale. */
  const heddle_engine_adapter* adapters; /* NULL */
  size_t num_adapters;                   /* 0 */
  heddle_adapter_merge merge;            /* of that list, or of each variant's of two or more */

  /* {NULL, 0}; requests take keys and values from the prefix cache of those with the same salt
     alone. One for each tenant keeps any of them from measuring what others have asked. */
  heddle_string cache_salt;

  heddle_string tenant; /* {NULL, 0}; with fairness "tenant": whose request this is */
  double tenant_weight; /* 1; with fairness: the share of the tenant or adapter, 0.001 to 1000 */
  int64_t priority; /* 0; any number: of the requests that wait, those of the lowest start first */

  heddle_string speculation; /* {NULL, 0}: as the engine; one of its methods, or "off" */
  /* {NULL, 0}; what the answer probably is: its tokens are drafts, which no bit depends on. Of an
     engine that speculates alone. */
  heddle_string prediction;

  heddle_answer_format format;
  heddle_thinking_limit thinking;

  /* With a kind the event has values, and no token is drawn. */
  heddle_wanted_values values;

  heddle_engine_callback on_event; /* NULL: the events are for heddle_engine_poll */
  void* user_data;                 /* NULL; goes to on_event */
} heddle_engine_request;
void heddle_engine_request_init(heddle_engine_request* request);
/* Puts what the model's files say into the request: temperature, top_k, top_p, min_p,
   repetition_penalty and max_tokens, as far as generation_config.json or the GGUF file gives them;
   all else stays. To be called after _init and before a program's own values. */
heddle_status heddle_engine_apply_defaults(heddle_engine* engine, heddle_engine_request* request);

/* Queues a request; everything it points to is copied. *id names it in events, from 0. The first
   event may come before this returns. */
heddle_status heddle_engine_submit(heddle_engine* engine, const heddle_engine_request* request,
                                   int64_t* id);
/* In what a row of heddle_engine_submit_each differs from its request. */
typedef struct heddle_engine_variant {
  const heddle_engine_adapter* adapters; /* NULL: the request's own; else that has none */
  size_t num_adapters;                   /* 0 */
  int64_t seed_offset;                   /* 0; added to the request's seed */
} heddle_engine_variant;

/* Submits the request once for each variant, and writes as many ids: one prompt through several
   adapters, or several samples of one prompt, which have the seed offsets 0, 1, 2, ..., as in vLLM.
   Each row has events of its own, with the bits of the request alone with that variant's adapters
   and seed. Where rows begin with the same keys and values these are computed once, and their pages
   are shared; rows with prompt_logprobs compute all of theirs. */
heddle_status heddle_engine_submit_each(heddle_engine* engine, const heddle_engine_request* request,
                                        const heddle_engine_variant* variants, size_t num_variants,
                                        int64_t* ids);
/* Ends a request before the next step. Its last event has HEDDLE_FINISH_CANCELLED and what the
   answer was so far, or the end that came first. *was_unfinished, which may be NULL: false, and
   nothing happens, for one that has ended or was never submitted. */
heddle_status heddle_engine_cancel(heddle_engine* engine, int64_t id, bool* was_unfinished);

/* The news of the request without a callback that has waited longest for its reader; all that came
   since its last event is one event. Waits up to timeout_ms, below 0 without end; *event is NULL
   where nothing came. Several threads may poll, each event goes to one of them. */
heddle_status heddle_engine_poll(heddle_engine* engine, int64_t timeout_ms,
                                 heddle_engine_event** event);
/* NULL is fine. */
void heddle_engine_event_destroy(heddle_engine_event* event);

#ifdef __cplusplus
}
#endif

#endif /* HEDDLE_C_ENGINE_H_ */
