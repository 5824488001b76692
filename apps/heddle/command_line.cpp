#include "command_line.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <sstream>

#include "heddle/config.h"
#include "heddle/core/error.h"
#include "heddle/engine/engine.h"

#include "byte_size.h"
#include "commit.h"
#include "embed_options.h"
#include "format_options.h"
#include "option_group.h"
#include "speculation_options.h"

namespace heddle::app {
namespace {

constexpr const char* kAuto = "auto";
constexpr int kMaxInt = std::numeric_limits<int>::max();

void add_adapter(std::vector<NamedAdapter>& adapters, const std::string& text,
                 const NamedAdapter& adapter) {
  const bool is_new =
      std::ranges::find(adapters, adapter.name, &NamedAdapter::name) == adapters.end();
  HEDDLE_CHECK(is_new, "--adapter ", text, ": the name \"", adapter.name, "\" is given twice");
  adapters.push_back(adapter);
}

/// NAME=DIR, cut at the first '='. Of a folder of several adapters each is NAME/FOLDER.
void add_adapters(std::vector<NamedAdapter>& adapters, const std::string& text) {
  const size_t at = text.find('=');
  HEDDLE_CHECK(at != std::string::npos && at > 0 && at + 1 < text.size(), "--adapter ", text,
               ": expected NAME=DIR");
  const std::string name = text.substr(0, at), folder = find_adapter_path(text.substr(at + 1));
  HEDDLE_CHECK(name != kBaseName, "--adapter ", text, ": the name ", kBaseName,
               " means the model without an adapter");
  const std::vector<std::string> several = adapters_in(folder);
  if (several.empty()) return add_adapter(adapters, text, {name, folder});
  for (const std::string& one : several) {
    add_adapter(adapters, text, {name + "/" + one, folder + "/" + one});
  }
}

/// Refuses numbers outside of [low, high], and NaN, which CLI::Range lets pass.
CLI::Validator number_in(float low, float high) {
  return {[low, high](const std::string& text) {
            float number = 0;
            const bool is_in =
                CLI::detail::lexical_cast(text, number) && number >= low && number <= high;
            std::ostringstream range;
            range << text << " is not a number from " << low << " to " << high;
            return is_in ? std::string() : range.str();
          },
          ""};
}

/// Bytes, or 0 for "auto".
int64_t read_memory(const char* option, const std::string& text) {
  if (text == kAuto) return 0;
  const std::optional<int64_t> bytes = parse_byte_size(text);
  HEDDLE_CHECK(bytes, option, " ", text, ": expected ", kAuto,
               " or a size of at least 1 byte, such as 8G, 1500M or 2000000");
  return *bytes;
}

/// ID=BIAS
TokenBias read_bias(const std::string& text) {
  TokenBias bias;
  const size_t at = text.find('=');
  const bool is_bias = at != std::string::npos &&
                       CLI::detail::lexical_cast(text.substr(0, at), bias.token) &&
                       CLI::detail::lexical_cast(text.substr(at + 1), bias.bias) &&
                       bias.token >= 0 && bias.bias >= -100.0f && bias.bias <= 100.0f;
  HEDDLE_CHECK(is_bias, "--logit-bias ", text,
               ": expected a token id and a number from -100 to 100, such as 42=-1.5");
  return bias;
}

void add_penalty_options(CLI::App& command, AnswerOptions& options) {
  const OptionGroup group(command, "Answers");
  SamplingOptions& sampling = options.sampling;
  group
      .value(
          "--repetition-penalty", options.given.repetition_penalty, "X",
          "Divides positive logits of tokens in prompt or answer, multiplies negative ones; 1: off")
      ->default_str("1")
      ->check(number_in(std::numeric_limits<float>::min(), 1e6f));
  group
      .value("--frequency-penalty", sampling.frequency_penalty, "X",
             "Subtracted from a token's logit each time that it is in the answer, -2 to 2; 0: off")
      ->capture_default_str()
      ->check(number_in(-2.0f, 2.0f));
  group
      .value("--presence-penalty", sampling.presence_penalty, "X",
             "Subtracted from the logits of tokens in the answer, -2 to 2; 0: off")
      ->capture_default_str()
      ->check(number_in(-2.0f, 2.0f));
  command
      .add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [&options](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) options.logit_bias.push_back(read_bias(text));
          },
          "Added to a token's logit, -100 to 100; can be repeated")
      ->allow_extra_args(false)
      ->type_name("ID=X")
      ->group("Answers");
  group.number("--min-tokens", options.min_tokens, 0, kMaxInt, "N",
               "Minimum number of tokens before anything but --max-tokens ends an answer");
  group
      .list("--stop-token-id", options.stop_token_ids, "ID",
            "Token that ends an answer; can be repeated")
      ->check(CLI::Range(0, kMaxInt));
  group.list("--bad-word", options.bad_words, "TEXT",
             "Word that no answer contains; can be repeated");
}

/// Empty for what the engine chooses.
std::string unless_auto(const std::string& text) { return text == kAuto ? "" : text; }

std::string read_device(const std::string& text) {
  HEDDLE_CHECK(kWithCuda || !text.starts_with("cuda"), "--device ", text,
               ": this program has no CUDA code; build it where nvcc is installed, with "
               "HEDDLE_GPU_PROGRAMS=ON (docs/platforms.md)");
  return unless_auto(text);
}

void add_device(const OptionGroup& group, EngineOptions& engine) {
  group.text(
      "--device", [&engine](const std::string& text) { engine.device = read_device(text); }, kAuto,
      "DEVICE", "Where the model runs: cpu, cuda or cuda:1; auto: a GPU if one is found");
}

void add_threads(const OptionGroup& group, EngineOptions& engine) {
  group.number("-t,--threads", engine.num_threads, 0, 1024, "", "Threads; 0: one per processor");
}

void add_engine_options(CLI::App& command, EngineOptions& engine) {
  const OptionGroup group(command, "Engine");
  const auto add_size = [&group](const char* option, int64_t& bytes, const char* what) {
    const auto read = [option, &bytes](const std::string& text) {
      bytes = read_memory(option, text);
    };
    group.text(option, read, kAuto, "SIZE", what);
  };
  add_device(group, engine);
  add_threads(group, engine);
  group.number("--max-context", engine.max_context, 0, kMaxInt, "",
               "Maximum number of tokens in a row, prompt and answer; 0: the model's own limit");
  group.number("--page-size", engine.page_size, 1, 4096, "", "Tokens per page of the KV cache");
  group.number("--prefill-chunk", engine.prefill_chunk, 0, 65536, "",
               "Maximum number of prompt tokens per step; 0: 512, on a GPU 2048");
  add_size("--kv-memory", engine.kv_memory,
           "Memory for the KV cache, such as 8G; auto: half of the free memory. Rows wait while it "
           "is in use");
  command
      .add_flag_callback(
          "--no-prefix-cache", [&engine] { engine.prefix_cache = false; },
          "Computes every prompt whole, also where an earlier one began alike")
      ->group("Engine");
  group.text(
      "--kv-host-memory",
      [&engine](const std::string& text) {
        engine.kv_host_memory = text == kAuto ? -1
                                : text == "0" ? 0
                                              : read_memory("--kv-host-memory", text);
      },
      kAuto, "SIZE",
      "On a GPU: host memory for pages that it has no room for, such as 20G; 0: none; auto: a "
      "quarter of the free memory");
  group.value("--kv-cache-dir", engine.kv_cache_dir, "DIR",
              "Folder in which the prefix cache outlives the program: a later one of the same "
              "model and options finds it");
  add_size("--kv-disk-memory", engine.kv_disk_memory,
           "Disk that --kv-cache-dir may take, such as 20G; auto: a quarter of what is free");
  command
      .add_flag("--kv-disk-salted", engine.kv_disk_salted,
                "Keeps in --kv-cache-dir what requests with a cache_salt have computed, too")
      ->group("Engine");
  group
      .value("--admit", engine.admit, "WHEN",
             "When a row starts: now, as soon as the pages of its prompt and a few more are free; "
             "it may be parked later. longest: when those of its longest answer are free, too")
      ->check(CLI::IsMember({"now", "longest"}))
      ->default_str("now");
  group.text(
      "--kv-type", [&engine](const std::string& text) { engine.kv_type = unless_auto(text); },
      kAuto, "TYPE",
      "Type of the KV cache: f32 (on the CPU), or f16 or bf16, which take half the memory and "
      "round, or fp8 in a little over a quarter, which rounds to 3 bits of fraction; auto: f32, on "
      "a GPU the type of the activations, where fp8 is the only other one");
  group.text(
      "--activations",
      [&engine](const std::string& text) { engine.activations = unless_auto(text); }, kAuto, "TYPE",
      "What products with the model's matrices take on the CPU: f32, or int8, which rounds "
      "to 8 bits what those in block formats (Q4_0, ...) read: faster prompts where the "
      "processor has AVX-512 VNNI; auto: f32");
  add_speculation_options(command, engine.speculation);
  add_size("--draft-memory", engine.speculation.memory,
           "Memory for recent answers of --speculate suffix, such as 1G; auto: 64M. Of model: for "
           "keys and values of the draft model; auto: a quarter of the free memory");
  add_size("--adapter-memory", engine.adapter_memory,
           "Memory for all adapters, such as 1G; auto: with --adapters a quarter of the free "
           "memory, otherwise no limit. Those of --adapters are evicted for one another");
  add_size("--adapter-host-memory", engine.adapter_host_memory,
           "On a GPU: host memory for copies of adapters from --adapters, from which they are "
           "loaded onto the GPU; auto: a quarter of the free memory");
  group.number("--max-batch-adapters", engine.max_batch_adapters, 0, kMaxInt, "",
               "Maximum number of adapters that rows which run at once may use; 0: no limit");
  add_size("--max-batch-adapter-bytes", engine.max_batch_adapter_bytes,
           "Maximum size of these adapters' weights, such as 64M; auto: no limit");
}

void add_input_options(CLI::App& command, GenerateOptions& options) {
  const OptionGroup group(command, "Input");
  CLI::Option* prompts = group.value("PROMPT", options.prompts, "",
                                     "Prompts; a single - reads them from standard input");
  group
      .value("--prompts", options.prompts_path, "FILE",
             "File with a JSON object or a prompt on each line; - reads standard input as lines "
             "arrive")
      ->excludes(prompts);
  const std::map<std::string, LineFormat> formats = {
      {kAuto, LineFormat::kAuto}, {"jsonl", LineFormat::kJson}, {"text", LineFormat::kText}};
  group
      .value("--input", options.input, "",
             "Format of the lines: jsonl, a JSON object each; text, a prompt each; auto: jsonl if "
             "the file name says so or the first line begins with {, otherwise text")
      ->transform(CLI::CheckedTransformer(formats).description(""))
      ->default_str(kAuto)
      ->type_name("FORMAT");
  group.flag("--raw", options.raw, "Takes prompts as plain text, without the chat template");
  group.flag("--keep-going", options.keep_going,
             "Answers invalid rows of a file with their error, and runs the others");
}

void add_output_options(CLI::App& command, GenerateOptions& options) {
  const OptionGroup group(command, "Output");
  group.flag("--json", options.json, "One JSON object per row, written when the row is finished");
  group.flag("--ordered", options.ordered, "With --json: rows in the order of the input");
  group.number("--hold", options.hold, int64_t{1}, std::numeric_limits<int64_t>::max(), "N",
               "Maximum number of finished rows that wait for an earlier one; then no row is "
               "admitted");
  group.value("--resume", options.resume_path, "FILE",
              "Appends JSON answers to this file and skips the rows that it already answers");
  group.flag("--logprobs", options.logprobs, "With --json: log-probabilities of the tokens");
  group.number("--top-logprobs", options.answer.top_logprobs, 0, 100, "N",
               "With --json: this many of the most likely tokens at each position, up to 100");
  group.flag("--prompt-logprobs", options.answer.prompt_logprobs,
             "With --json: log-probabilities of the prompt's tokens");
  group.number("--n", options.answer.n, 1, 128, "N",
               "Answers per prompt, 1 to 128; answer i draws with the row's seed + i");
  group.value("--stats", options.stats_path, "FILE", "Writes times and counts to this file");
  group.flag("-q,--quiet", options.quiet, "No progress, statistics or notes");
}

void add_generate(CLI::App& app, GenerateOptions& options) {
  CLI::App* command = app.add_subcommand("generate", "Answers prompts, each with its own adapter");
  add_input_options(*command, options);
  add_model_options(*command, options.model);
  add_max_batch(*command, options.model.engine);
  add_answer_options(*command, options.answer);
  add_output_options(*command, options);
  command->footer(
      "heddle generate \"What is a loom?\"\n"
      "heddle generate --adapter sql=examples/adapters/sql \"SQL: count cars\"\n"
      "tail -1 examples/demo.jsonl | heddle generate --json -");
}

void add_chat(CLI::App& app, ChatOptions& options) {
  CLI::App* command = app.add_subcommand(
      "chat", "Holds a conversation, on a terminal or with lines of standard input");
  add_model_options(*command, options.model);
  add_answer_options(*command, options.answer);
  const OptionGroup group(*command, "Conversation");
  command
      ->add_flag_callback(
          "--no-history", [&options] { options.history = false; },
          "Does not keep the lines that are typed for later runs")
      ->group("Conversation");
  group.flag("--timings", options.timings,
             "Shows tokens, also those that were cached, and seconds after each answer, on "
             "standard error");
  command->footer("heddle chat --adapter sql=examples/adapters/sql");
}

void add_inspect(CLI::App& app, InspectOptions& options) {
  CLI::App* command = app.add_subcommand("inspect", "Shows what a model or an adapter contains");
  command->add_option("PATH", options.path, "GGUF file, or folder of a model or an adapter")
      ->required();
  const OptionGroup group(*command, "Adapters");
  group.value("-m,--model", options.base, "FILE",
              "Loads the adapter onto this model, and shows how much of its weights it changes");
  command->footer("heddle inspect examples/adapters/sql");
}

void add_pull(CLI::App& app, PullOptions& options) {
  CLI::App* command = app.add_subcommand(
      "pull", "Fetches a model or an adapter from the Hugging Face hub into its local cache");
  const OptionGroup group(*command, "Fetching");
  group.value("ORG/NAME", options.id, "", "Name on the hub")->required();
  group.flag("--adapter", options.is_adapter, "Fetches an adapter; without it, a model");
  group.value("--revision", options.revision, "REVISION", "Branch, tag or commit")
      ->capture_default_str();
  group.value("--file", options.file, "FILE",
              "GGUF file of a repository that has several; without it, the model's folder in "
              "safetensors");
  group.flag("-q,--quiet", options.quiet, "No progress, and nothing but the path and errors");
  command->footer(
      "heddle pull HuggingFaceTB/SmolLM2-135M-Instruct\n"
      "heddle pull --adapter someone/sql-lora");
}

void add_demo(CLI::App& app, DemoOptions& options) {
  CLI::App* command = app.add_subcommand(
      "demo", "Answers questions with and without the example adapters, side by side");
  EngineOptions& engine = options.engine;
  const OptionGroup group(*command, "Demo");
  group.value("--examples", options.examples, "DIR",
              "Folder with demo.jsonl and adapters; without it the one that was installed");
  group.value("-m,--model", engine.model_path, "FILE",
              "The model that the adapters were made for; without it $HEDDLE_MODEL, then the "
              "default model in the cache");
  add_device(group, engine);
  add_threads(group, engine);
  command->footer("heddle demo --threads 2");
}

/// Options whose value names something refuse an empty one: it is a variable of a shell that was
/// not set, and would be as if the option was not given.
void refuse_empty_values(CLI::App& command) {
  constexpr std::array<std::string_view, 16> kNaming = {
      "NAME",    "FILE",   "DIR",  "NAME=DIR", "TYPE",    "FROM",   "DEVICE",   "SIZE",
      "ADDRESS", "ORIGIN", "ID=X", "N",        "PATTERN", "PARSER", "REVISION", "SOURCE"};
  for (CLI::Option* option : command.get_options()) {
    const std::string type = option->get_type_name();
    if (std::ranges::find(kNaming, type.substr(0, type.find(':'))) == kNaming.end()) continue;
    option->check(CLI::Validator(
        [type](const std::string& text) {
          return text.empty() ? "is empty, expected " + type : std::string();
        },
        ""));
  }
}

}  // namespace

void add_max_batch(CLI::App& command, EngineOptions& engine) {
  OptionGroup(command, "Engine")
      .number("--max-batch", engine.max_batch, 1, 4096, "",
              "Maximum number of rows that run at once");
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  const OptionGroup group(command, "Model");
  group.value("-m,--model", options.engine.model_path, "FILE",
              "GGUF file, folder of a Hugging Face model, or its name in the local cache; without "
              "it $HEDDLE_MODEL, then the default model in the cache");
  command
      .add_option_function<std::vector<std::string>>(
          "--adapter",
          [&options](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) add_adapters(options.adapters, text);
          },
          "PEFT adapter to load, and its name; can be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=DIR")
      ->group("Model");
  group.value("--adapters", options.engine.adapter_dir, "DIR",
              "Folder of adapters; each is loaded when a request first names its folder");
  group
      .value("--generation-config", options.engine.generation_config, "FROM",
             "Source of temperature, top-k, top-p, min-p, repetition penalty and max-tokens where "
             "they are not given: auto, the model's generation_config.json or GGUF file; none; or "
             "the path of such a file or its folder")
      ->default_str(kAuto);
  group.flag("--strict", options.strict,
             "Makes errors of warnings about the model and its adapters: an adapter made for "
             "another model, settings that heddle does not know or do");
  group.value(
      "--weights", options.engine.weights, "TYPE",
      "Packs f32, f16 and bf16 matrices on load: q8_0, q5_1, q5_0, q4_1, q4_0, f16 or bf16");
  add_engine_options(command, options.engine);
}

void add_answer_options(CLI::App& command, AnswerOptions& options) {
  const OptionGroup group(command, "Answers");
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  GenerationDefaults& given = options.given;  // else the model's files say it
  group.value("--use", options.use, "NAME", "Adapter to use; base: the model without one");
  group.value("--system", options.system, "TEXT",
              "System message at the start of each conversation");
  group
      .value("--max-tokens", given.max_tokens, "N",
             "Maximum number of tokens in an answer; 0: only the prompt's log-probabilities")
      ->default_str("256")
      ->check(CLI::Range(int64_t{0}, kMax));
  group
      .value("--temperature", given.temperature, "X",
             "Sampling temperature; 0: always the most likely token")
      ->default_str("0")
      ->check(number_in(0.0f, 1e6f));
  group.value("--top-k", given.top_k, "K", "Samples from the K most likely tokens; 0: off")
      ->default_str("0")
      ->check(CLI::Range(0, kMaxInt));
  group
      .value("--top-p", given.top_p, "P",
             "Samples from the most likely tokens that have this probability together; 1: off")
      ->default_str("1")
      ->check(number_in(std::numeric_limits<float>::min(), 1.0f));
  group
      .value("--min-p", given.min_p, "P",
             "Minimum probability of a token, as a share of the most likely token's; 0: off")
      ->default_str("0")
      ->check(number_in(0.0f, 1.0f));
  group.list("--stop", options.stop, "TEXT", "Ends the answer before this text; can be repeated");
  add_penalty_options(command, options);
  add_format_options(command, options.format);
  group
      .value("--seed", options.sampling.seed, "N",
             "Row i draws with this number + i unless it has a seed of its own")
      ->capture_default_str();
}

void declare_commands(CLI::App& app, CommandLine& line) {
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", std::string(kVersion) + " (commit " + commit() + ")",
                       "Shows the version, and the commit that it was built of");
  add_generate(app, line.generate);
  add_embed(app, line.embed);
  add_chat(app, line.chat);
  add_serve(app, line.serve);
  add_run_batch(app, line.batch);
  add_pull(app, line.pull);
  add_inspect(app, line.inspect);
  add_demo(app, line.demo);
  add_help_commands(app, line.help);
  for (CLI::App* command : app.get_subcommands({})) refuse_empty_values(*command);
  app.footer(
      "heddle generate \"What is a loom?\"\n"
      "heddle generate --adapter sql=examples/adapters/sql \"SQL: count cars\"");
}

std::vector<std::string> in_parsing_order(std::span<const std::string> arguments) {
  std::vector<std::string> parts;
  bool are_options = true;
  for (const std::string& argument : arguments) {
    are_options &= argument != "--";
    const bool is_empty = are_options && argument.starts_with("--") && argument.size() > 3 &&
                          argument.find('=') == argument.size() - 1;
    parts.push_back(is_empty ? argument.substr(0, argument.size() - 1) : argument);
    if (is_empty) parts.emplace_back();
  }
  std::ranges::reverse(parts);
  return parts;
}

}  // namespace heddle::app
