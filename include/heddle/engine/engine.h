#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/engine/adapter_content.h"
#include "heddle/engine/adapter_receipt.h"
#include "heddle/engine/generation_defaults.h"
#include "heddle/engine/request.h"
#include "heddle/engine/speculation.h"

namespace heddle {

struct ExecContext;
struct EngineHooks;
namespace answers {
struct AnswerStyle;
}

/// What an engine runs and with how much. A number out of its range is an Error that names it.
struct EngineOptions {
  /// A GGUF file (of a split one the first part), a folder that transformers saved, or the name of
  /// a model that is in the local Hugging Face cache ("org/model").
  std::string model_path{};
  /// "cpu", "cuda" or "cuda:1"; empty: the first GPU that this build has kernels for, or else the
  /// CPU. All operations run there (docs/engine.md has what differs).
  std::string device{};
  int max_batch = 16;   // rows that run at once, 1 to 65536
  int num_threads = 0;  // up to 2047; 0: one per processor
  int page_size = 16;   // tokens in a page of the KV cache, 1 to 65536
  /// Most prompt tokens that one step prefills. 0: 512, on a GPU 2,048, where it is never more
  /// than 65,536.
  int prefill_chunk = 0;
  int64_t max_context = 0;  // tokens of one row, prompt and answer; 0: what the model was made for
  /// Bytes that the KV cache may take, at least those of a page; what max_batch full contexts need
  /// is enough, and more is not used. 0: half of the device's memory that is available when the
  /// weights are loaded. Rows wait while their pages are in use by others. A page takes 2 page_size
  /// num_layers num_kv_heads head_dim numbers of kv_type; of "fp8", bytes, and 2 page_size
  /// num_layers num_kv_heads scales of 4 bytes.
  int64_t kv_memory = 0;
  /// Whether a request takes the keys and values of tokens that an earlier one began with, which
  /// then are not computed again (docs/prefix_cache.md). No bit of an answer depends on it.
  bool prefix_cache = true;
  /// Bytes of host memory, pinned when the engine is made, for pages of a GPU's KV cache: those of
  /// the prefix cache that the GPU has no room for any more, and those of parked requests. 0: none.
  /// -1: a quarter of what is available, and no more than twice the KV cache. On the CPU none.
  int64_t kv_host_memory = -1;
  /// A folder in which pages of the prefix cache outlive the engine: a later one of the same
  /// program, model and options on the same processor or kind of GPU finds them. Empty: none. It is
  /// made where it is missing, with a mode of 0700. One engine at a time has it, a second one goes
  /// on without.
  std::string kv_cache_dir{};
  /// Bytes that the files in it may take. 0: a quarter of what its file system has free when the
  /// engine is made, with what they take already.
  int64_t kv_disk_memory = 0;
  /// Whether pages of requests with a salt go there, too. Only requests with the same salt find
  /// them, but they are on disk as they are in memory.
  bool kv_disk_salted = false;
  /// When a waiting request starts: "now" (empty), where the pages of its prompt and a few more are
  /// free; when pages run out later, the youngest requests are parked. "longest": where those of
  /// its longest answer are free, too, so that none is ever parked; a model whose rotation depends
  /// on the length of a sequence always has this.
  std::string admit{};
  /// In which order waiting requests start: "off" (empty), the order in which they were submitted;
  /// "adapter" or "tenant", so that adapters, or those that Request::tenant names, share the engine
  /// by Request::tenant_weight and a burst of one does not hold up the others (of several adapters
  /// the first counts; docs/fair_shares.md). No bit of an answer depends on it.
  std::string fairness{};
  /// Type in which keys and values are kept: on the CPU "f32" (empty), or "f16" or "bf16", to which
  /// they are rounded when they are stored (docs/engine.md); in f16 what is above 65504 becomes
  /// infinite. "fp8": f8e4m3 with an f32 scale for each token and kv head. On a GPU "fp8", or
  /// the type in which the model's products are read and written, "f16" or "bf16"; empty: that one.
  std::string kv_type{};
  /// Type in which matrices that are stored in f32, f16 or bf16 are packed when the model is
  /// loaded: "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "f16" or "bf16"; empty: as they are stored.
  /// Those in block formats stay, and those whose rows are no multiple of the block of 32.
  std::string weights{};
  /// What products with the model's matrices take on the CPU: "f32" (empty), or "int8": those of
  /// matrices in block formats ("q8_0", "q4_0", ... but not f32, f16 and bf16) round what they read
  /// to 8 bits for each token and block of 32 features, and sum integers (LinearActivations; fast
  /// where the processor has AVX-512 VNNI). Adapters, attention and norms stay in f32. An error on
  /// a GPU, and where no matrix has such a format.
  std::string activations{};
  SpeculationOptions speculation{};
  /// A folder of adapters that are found by name when a request first names them, each a folder as
  /// PEFT saves it or a GGUF file of llama.cpp ("NAME.gguf"); empty: none (docs/adapters.md). It is
  /// not listed: how many there are does not matter.
  std::string adapter_dir{};
  /// A second such folder, for programs that fetch adapters into it: it is looked into for names
  /// that adapter_dir does not have. C++ only.
  std::string fetched_adapter_dir{};
  /// Bytes that the weights of all adapters may take. Those of adapter_dir that no running request
  /// uses are evicted for others, the least recently used first; a request waits while all are in
  /// use. 0: with adapter_dir a quarter of the memory that is available when the weights of the
  /// model are loaded; else as much for merges of adapters (Request::merge), and no limit for those
  /// that are added.
  int64_t adapter_memory = 0;
  /// On a GPU bytes of host memory for copies of adapters of adapter_dir, from which they are
  /// copied to the GPU while steps run; one without a copy is read from its file again. 0: a
  /// quarter of the host memory that is available. On the CPU adapters are in host memory anyway:
  /// it must be 0.
  int64_t adapter_host_memory = 0;
  /// Adapters that the rows which run at once may use, and the bytes of these adapters' weights: a
  /// decode step reads them all. A row with a list that is longer runs alone. 0: no bound.
  int64_t max_batch_adapters = 0, max_batch_adapter_bytes = 0;
  /// Where ModelInfo::generation comes from: "auto" or empty, the model's own files; "none",
  /// nowhere; else a generation_config.json or a folder that has one, whose eos_token_id also takes
  /// the place of the model's end tokens.
  std::string generation_config{};
  /// Whether what is odd about an adapter (AdapterInfo::warnings) is an Error.
  bool strict = false;
  /// Called while the weights are loaded, by the thread that makes the engine.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load{};
  /// Called with what is odd about an adapter of adapter_dir each time that it is found there anew,
  /// by the thread that checks the request, or read, by the thread that has the engine; with what
  /// is odd about the norms of an adapter that was added, by a thread that computes them; and with
  /// what fails about kv_cache_dir, by the thread that has the engine. It must not call the engine.
  std::function<void(const std::string& warning)> on_warning{};
  /// Called with the path of an adapter of adapter_dir, or with "the merge of A and B", and its
  /// receipt, without norms, each time that its weights have been read or made, by the thread that
  /// has the engine. It must not call the engine.
  std::function<void(const std::string& path, const AdapterReceipt& receipt)> on_receipt{};
};

/// Facts of the loaded model.
struct ModelInfo {
  std::string path, name, architecture;
  int64_t num_layers = 0, hidden_size = 0, intermediate_size = 0;
  int64_t num_q_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t vocab_size = 0, context_length = 0;
  int64_t num_parameters = 0, weight_bytes = 0;
  int64_t read_bytes = 0;          // of the matrices in the files
  double load_seconds = 0;         // that it took to bring all weights to the device
  std::vector<std::string> files;  // that it was read from
  std::string settings_path;       // the one that has the settings: config.json, or the GGUF file
  std::vector<std::string> unread_settings;  // its keys that heddle knows nothing of
  std::vector<std::string> warnings{};       // what else is odd about the files, in sentences
  std::vector<std::string> notes{};          // what a user may want to know of them, in sentences
  GenerationDefaults generation{};  // for those who make requests; the engine applies none of it
  std::string device_name{};        // of the GPU, "NVIDIA H200"; empty on the CPU
  std::string activations{};  // what products and attention read and write: "f32", "f16", "bf16"
  // With EngineOptions::weights:
  std::string weights{};          // the type, such as "Q8_0"; empty: the option was not given
  std::string packed_from{};      // types of the matrices that were packed, such as "BF16, F32"
  int64_t num_kept_matrices = 0;  // their rows are no multiple of the block
  double weight_error = 0;        // sqrt(sum (packed - stored)^2 / sum stored^2) of those packed
};

/// Facts of a loaded adapter.
struct AdapterInfo {
  std::string name, folder;
  std::string base_model;  // the model it was made for, as its configuration names it; may be empty
  /// Whether base_model may be the engine's model: it is empty, or agrees with one of the names
  /// that the model's file has and gives.
  bool names_this_model = true;
  int64_t version = 0;  // under its name: 1 for the first adapter, and one more for each later one
  /// What is odd about it, one sentence each: it was made for another model, its configuration has
  /// settings that heddle does not know, modules that it shall change have no tensors, or it
  /// changes nothing.
  std::vector<std::string> warnings{};
  /// Without norms, which are computed after the load; with EngineOptions::strict with them.
  AdapterReceipt receipt{};
};

/// Whether the norms of a receipt are those that have been computed so far, perhaps none, or all.
enum class ReceiptNorms : uint8_t { kAsKnown, kComputed };

/// The folders of adapters in a folder that PeftModel.save_pretrained wrote of several, by name;
/// none where it is itself the folder of an adapter.
[[nodiscard]] std::vector<std::string> adapters_in(const std::string& folder);

/// Where the adapter of this name is in a folder of adapters (EngineOptions::adapter_dir). Throws
/// Error where there is none, where the name is no name of a file in the folder, and where it leads
/// out of the folder.
[[nodiscard]] std::string find_adapter(const std::string& adapter_dir, const std::string& name);

/// The path where there is a file or folder, else the folder of the adapter of this name
/// ("org/name") in the local Hugging Face cache: $HF_HUB_CACHE, $HF_HOME/hub,
/// ~/.cache/huggingface/hub. Throws Error, which says how to fetch it, where the cache has none; of
/// what is no such name the path comes back. Engine::prepare_adapter and add_adapter take either.
[[nodiscard]] std::string find_adapter_path(const std::string& path);

/// An adapter that an engine knows.
struct AdapterState {
  std::string name;
  int64_t num_bytes = 0;  // of its weights in memory, at most
  bool is_in_memory = false;
  bool is_added = false;  // it stays until it is removed; else it is of EngineOptions::adapter_dir
  int64_t version = 0;    // AdapterInfo::version; of adapter_dir 0
};

/// Where the time of an engine has gone, in seconds, and what it did. A step that has prompt tokens
/// counts as prefill.
struct EngineStats {
  double prefill_seconds = 0, decode_seconds = 0;
  double lora_seconds = 0;       // part of both
  int64_t prefill_tokens = 0;    // prompt tokens computed
  int64_t decode_tokens = 0;     // tokens drawn in decode steps
  int64_t generated_tokens = 0;  // tokens drawn in all steps
  int64_t prefill_steps = 0, decode_steps = 0;
  double wait_seconds = 0;  // part of both: the host waited for the device
  /// On a GPU, of steps that overlap: the device computed, and was idle between two of them.
  double device_seconds = 0, device_gap_seconds = 0;
  /// On a GPU: CUDA graphs of decode steps that were recorded, one for each class of batch sizes,
  /// and how long that took, part of decode_seconds.
  int64_t graphs = 0;
  double graph_seconds = 0;
  int64_t adapter_uses = 0;       // adapters of requests that started
  int64_t adapter_loads = 0;      // adapters whose weights became resident, each time
  int64_t adapter_reads = 0;      // of these, or of copies in host memory, from files
  double adapter_seconds = 0;     // that it took, concurrently with steps
  int64_t adapter_evictions = 0;  // adapters that were evicted for others
  // Of requests that may take keys and values from the prefix cache: tokens of their prompts, and
  // those of them that they took. A request that was parked counts each time that it starts.
  int64_t prefix_tokens = 0, cached_tokens = 0;
  // Tokens whose keys and values came from host memory of a GPU's engine, and from kv_cache_dir.
  int64_t host_tokens = 0, disk_tokens = 0;
  int64_t parkings = 0;  // times that a request was parked
  DraftCounts drafts{};  // those that were accepted are part of generated_tokens
  DraftStats draft_stats{};
};

/// What an engine has to do, and how full its KV cache is, at this moment.
struct EngineLoad {
  int64_t num_waiting = 0, num_running = 0;     // requests
  int64_t num_ended = 0;                        // those whose end the next step reports
  int64_t num_pages = 0, num_free_pages = 0;    // of the KV cache; free: reserved for no request
  int64_t num_cached_pages = 0;                 // of the free ones: the prefix cache has them
  int64_t num_host_pages = 0;                   // in host memory, of a GPU's engine
  int64_t num_disk_pages = 0;                   // in kv_cache_dir
  int64_t num_parked = 0;                       // of the waiting requests: those that were parked
  int64_t num_adapters = 0, adapter_bytes = 0;  // whose weights are in memory
  // Of a GPU's engine: those with a copy in host memory, or on the way there.
  int64_t num_host_adapters = 0, host_adapter_bytes = 0;
};

/// What a request does now: it waits, computes its prompt, or draws tokens.
enum class RowPhase : uint8_t { kWaiting, kPrefill, kDecode };
/// "waiting", "prefill" or "decode".
[[nodiscard]] const char* name(RowPhase phase);

/// A request that waits or runs.
struct RowProgress {
  RequestId id = 0;
  std::string adapter{};  // as the request names it, of a list all joined by '+'; empty: none
  RowPhase phase = RowPhase::kWaiting;
  bool is_parked = false;       // it waits to go on
  bool is_paused = false;       // Engine::set_paused
  int64_t prompt_tokens = 0;    // of these the first so many:
  int64_t cached_tokens = 0;    // came from the prefix cache
  int64_t computed_tokens = 0;  // have keys and values, these included
  int64_t answer_tokens = 0;    // that were drawn
};

/// Most older versions of one name: Engine::keep_versions.
inline constexpr int kMaxKeptVersions = 64;

/// What becomes of the requests of an adapter that is replaced.
enum class RunningRequests : uint8_t {
  /// They end with the weights that they were submitted with.
  kFinish,
  /// They go on with the new ones. One that waits begins with them. One that runs, or is paused,
  /// keeps its keys and values and computes its next token with them: from there on its bits are
  /// those of any request that changed at the same token, and no other request finds its pages. One
  /// that was parked first gets back what it had. Requests with Request::values end with what they
  /// were submitted with.
  kSwitch
};

/// An adapter on its way to a name: Engine::prepare_adapter. It does not outlive its engine.
class PreparedAdapter {
 public:
  PreparedAdapter(PreparedAdapter&&) noexcept;
  PreparedAdapter& operator=(PreparedAdapter&&) noexcept;
  ~PreparedAdapter();

 private:
  friend class Engine;
  struct State;
  explicit PreparedAdapter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A request that was checked, rendered and tokenized: Engine::encode. It does not outlive its
/// engine.
class EncodedRequest {
 public:
  EncodedRequest(EncodedRequest&&) noexcept;
  EncodedRequest& operator=(EncodedRequest&&) noexcept;
  ~EncodedRequest();

 private:
  friend class Engine;
  struct State;
  explicit EncodedRequest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Runs one model with many LoRA adapters: requests go in, rows of one batch use an adapter each,
/// events come out. A request's tokens and log-probabilities do not depend on what runs
/// concurrently, on the threads, the page size or the size of the prefill chunks. One thread owns
/// an engine.
class Engine {
 public:
  /// Loads the model. Throws Error with the file and the field or tensor that is wrong.
  explicit Engine(const EngineOptions& options);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Adapters of EngineOptions::adapter_dir need none of these calls. remove_adapter of one drops it
  // from memory, so that it is read anew when a request next names it; one that is added under its
  // name takes its place. has_adapter and adapter_names know those in memory or wanted.

  /// Reads an adapter and copies its weights to where they are used, or to host memory from which a
  /// GPU takes them, without a name. May run in any thread, concurrently with steps. Throws as
  /// add_adapter.
  [[nodiscard]] PreparedAdapter prepare_adapter(const std::string& folder) const;
  /// One that is in memory: of a trainer, say. AdapterInfo::folder is then its name.
  [[nodiscard]] PreparedAdapter prepare_adapter(const AdapterContent& content) const;
  /// The two parts of prepare_adapter: what is staged may be copied to a GPU while its values are
  /// checked. Both may run in any thread, concurrently with steps; check_adapter looks at all
  /// values once, and throws where they cannot be computed with.
  [[nodiscard]] PreparedAdapter stage_adapter(const std::string& folder) const;
  [[nodiscard]] PreparedAdapter stage_adapter(const AdapterContent& content) const;
  void check_adapter(PreparedAdapter& adapter) const;
  /// Whether begin_copy has a copy to make of what was just staged; never on the CPU.
  [[nodiscard]] bool needs_copy(const PreparedAdapter& adapter) const;
  /// Begins to copy staged weights from host memory to a GPU, so that steps run on meanwhile:
  /// add_adapter and replace_adapter wait for it. Does nothing where there is no copy to make.
  /// Throws Error where there is no room for them.
  void begin_copy(PreparedAdapter& adapter);
  /// Waits for that copy, in any thread, concurrently with steps.
  void wait_for_copy(const PreparedAdapter& adapter) const;
  /// What was prepared gets its name, as by the functions below; that takes no time.
  AdapterInfo add_adapter(const std::string& name, PreparedAdapter adapter);
  AdapterInfo replace_adapter(const std::string& name, PreparedAdapter adapter,
                              RunningRequests running = RunningRequests::kFinish);

  /// Loads an adapter: a folder as PEFT saves it, or a GGUF file of llama.cpp. Throws Error if it
  /// does not fit the model or the name is taken, and std::bad_alloc; the engine then is as it was.
  AdapterInfo add_adapter(const std::string& name, const std::string& folder);
  /// Loads an adapter under a name that may be in use: requests that are submitted from here on use
  /// the new adapter; what those that wait or run do, `running` says. The memory of the old weights
  /// is free when no request has them any more. With kSwitch the new adapter must have the
  /// tokenizer, end tokens, vocabulary and invocation tokens of the old one, and must be one for
  /// lists if that is; models whose rotation depends on the length of a sequence refuse it.
  /// Requests that an earlier kFinish left with older weights keep these. Where it throws, the old
  /// adapter stays.
  AdapterInfo replace_adapter(const std::string& name, const std::string& folder,
                              RunningRequests running = RunningRequests::kFinish);
  /// From here on so many older versions of a name, the latest ones, stay in memory when it is
  /// replaced: 0 to kMaxKeptVersions, at first 0. Requests may name them, and the present one, as
  /// "NAME@VERSION", where no adapter has that for its name. Where memory for an adapter is missing
  /// those go that no request uses.
  void keep_versions(const std::string& name, int count);
  /// The name stands for an older version that was kept; the one that it stood for is kept in its
  /// place. What requests of the name do that wait or run is as in replace_adapter. Throws
  /// UnknownAdapter, which lists the versions that there are.
  void roll_back_adapter(const std::string& name, int64_t version,
                         RunningRequests running = RunningRequests::kFinish);
  /// The name is unknown from here on, and so are its older versions; requests that wait or run end
  /// with the weights that they were submitted with. Returns false, and does nothing, where there
  /// is no adapter of that name.
  bool remove_adapter(const std::string& name);
  [[nodiscard]] bool has_adapter(const std::string& name) const;
  /// All names, in alphabetical order.
  [[nodiscard]] std::vector<std::string> adapter_names() const;
  /// The receipt of the adapter that has the name; absent for one of adapter_dir whose weights were
  /// not loaded yet. May run in any thread, concurrently with steps. kComputed waits for the norms;
  /// those of an adapter of adapter_dir are computed then, from its files, which is an Error where
  /// they have changed. Throws Error for an unknown name.
  [[nodiscard]] std::optional<AdapterReceipt> adapter_receipt(const std::string& name,
                                                              ReceiptNorms norms) const;

  /// All that has_adapter knows and their older versions, in alphabetical order.
  [[nodiscard]] std::vector<AdapterState> adapter_states() const;

  [[nodiscard]] const ModelInfo& model() const;
  /// With the defaults filled in; kv_memory is what the cache's pages come to.
  [[nodiscard]] const EngineOptions& options() const;

  /// Queues a request. One that cannot run (an unknown adapter, a value out of its range, a prompt
  /// longer than the context, a length whose pages the KV cache does not have, a template that
  /// refuses it, no memory for it) does not throw: it ends with finish_reason kError. Every request
  /// has exactly one event with a completion, its last, however it ends. Throws std::bad_alloc
  /// where there is no memory even for an error; then nothing was submitted.
  RequestId submit(Request request);
  /// Submits the request once for each of the variants: one prompt through several adapters, or
  /// several samples of one prompt, sample_variants(n). Returns an id for each, in order; each has
  /// events of its own, with the bits that it has alone. Where two rows begin with the same keys
  /// and values, because their adapters are the same, or do not act there yet (aLoRA before its
  /// invocation, the base model), these are computed once, in whole pages, which both use; rows
  /// with prompt_logprobs compute all of theirs. Throws std::bad_alloc where there is no memory
  /// even for errors; then nothing was submitted.
  std::vector<RequestId> submit_each(Request request, std::vector<RequestVariant> each);
  /// Both in parts: `encode` checks a request, renders its template and tokenizes it, in any thread
  /// and concurrently with steps and other calls; `submit` queues what came of it. The rows have
  /// the adapters that the names stand for while they are encoded. What fails ends the rows as
  /// `submit` of the request does. encode throws std::bad_alloc.
  [[nodiscard]] EncodedRequest encode(Request request) const;
  [[nodiscard]] EncodedRequest encode_each(Request request,
                                           const std::vector<RequestVariant>& each) const;
  std::vector<RequestId> submit(EncodedRequest encoded) noexcept;
  /// Throws the Error with which `submit` would end the request.
  void check(const Request& request) const;
  /// Ends a request that waits or runs: it takes no part in further steps, and when this returns
  /// its place in the batch and its pages are free. The next step reports its end: an event with
  /// finish_reason kCancelled and what the answer was so far, its text complete as if the answer
  /// had been cut off there by max_tokens. Returns whether there was something to end: false, and
  /// nothing happens, for a request that has ended already or was never submitted. Other requests
  /// keep their bits.
  bool cancel(RequestId request);
  /// A paused request keeps its place in the batch and its pages, and takes no part in steps until
  /// it goes on: for readers that cannot take its answer as fast. On a GPU a step that was launched
  /// before still reports its token. Returns false, and nothing happens, for a request that neither
  /// waits nor runs. Other requests keep their bits.
  bool set_paused(RequestId request, bool is_paused);
  /// Forgets what the prefix cache has: later requests find nothing of it. Requests that run keep
  /// what they took.
  void reset_prefix_cache() noexcept;
  /// Requests that wait or run, and those whose end a step has yet to report.
  [[nodiscard]] int64_t num_unfinished() const;
  /// Admits what fits, runs the model once and returns the events; none when there is no work.
  /// A failure ends the requests that it concerns with kError and leaves the others as they are: of
  /// a request alone that request, of the step as a whole those that run. Where it was the GPU that
  /// failed, the engine has ended: all requests that wait or run end with one sentence, which names
  /// what failed in which step, and so does every later one. Throws std::bad_alloc only where
  /// nothing runs and there is no memory for the list of events; it comes with the next step then.
  [[nodiscard]] std::vector<Event> step();

  [[nodiscard]] const EngineStats& stats() const;
  [[nodiscard]] EngineLoad load() const;
  /// The requests that run, then those that wait; at most so many.
  [[nodiscard]] std::vector<RowProgress> row_progress(size_t max_rows) const;
  /// The sentence with which all requests are answered from here on, where the GPU has failed;
  /// empty: the engine runs.
  [[nodiscard]] const std::string& ended_by() const;

  /// The prompt's tokens as `submit` makes them: for tools and tests.
  [[nodiscard]] std::vector<int32_t> tokenize(const Request& request) const;
  /// The tokenizer of the first adapter that the request names, or of the base model. May run in
  /// any thread, concurrently with steps and other calls. Throws Error for an unknown adapter.
  [[nodiscard]] std::shared_ptr<const PromptTokenizer> tokenizer(const Request& request) const;
  /// What the labels of WantedValues::kClasses are called: those of the score head of the first
  /// adapter that the request names, or of the model; none: there is no such head. As `tokenizer`.
  [[nodiscard]] std::vector<std::string> labels(const Request& request) const;
  /// The text of a conversation by the template of the first adapter that the request names, or of
  /// the base model, as `submit` makes it; `style` becomes what the template says of answers, for
  /// those who have heddle's sources. May run in any thread, also while the engine runs steps.
  /// Throws Error for an unknown adapter and where the template refuses it.
  [[nodiscard]] std::string render(const Request& request, answers::AnswerStyle& style) const;
  /// The same by a template of the caller's in place of the model's, with the base model's special
  /// tokens, under the limits of docs/chat_template.md. Throws Error where it is no template or
  /// passes a limit.
  [[nodiscard]] std::string render(const Request& request, const std::string& chat_template,
                                   answers::AnswerStyle& style) const;
  /// Log-softmax inputs of the last prompt token, as many as the head gives: for tools and tests.
  /// No other request may be unfinished. Throws the Error with which `submit` would end the
  /// request.
  [[nodiscard]] std::vector<float> prompt_logits(const Request& request);

 private:
  friend Engine make_engine(std::string_view config_json, uint64_t seed,
                            const EngineOptions& options,
                            std::function<void(const ExecContext&)> hook,
                            const std::string&);                               // made_engine.h
  friend Engine open_engine(const EngineOptions& options, EngineHooks hooks);  // as above
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace heddle
