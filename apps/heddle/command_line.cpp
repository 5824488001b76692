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

namespace heddle::app {
namespace {

constexpr const char* kAuto = "auto";

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
int64_t read_memory(const std::string& option, const std::string& text) {
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
  constexpr const char* kGroup = "Answers";
  SamplingOptions& sampling = options.sampling;
  command
      .add_option(
          "--repetition-penalty", options.given.repetition_penalty,
          "Divides positive logits of tokens in prompt or answer, multiplies negative ones; 1: off")
      ->default_str("1")
      ->check(number_in(std::numeric_limits<float>::min(), 1e6f))
      ->type_name("X")
      ->group(kGroup);
  command
      .add_option(
          "--frequency-penalty", sampling.frequency_penalty,
          "Subtracted from a token's logit each time that it is in the answer, -2 to 2; 0: off")
      ->capture_default_str()
      ->check(number_in(-2.0f, 2.0f))
      ->type_name("X")
      ->group(kGroup);
  command
      .add_option("--presence-penalty", sampling.presence_penalty,
                  "Subtracted from the logits of tokens in the answer, -2 to 2; 0: off")
      ->capture_default_str()
      ->check(number_in(-2.0f, 2.0f))
      ->type_name("X")
      ->group(kGroup);
  command
      .add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [&options](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) options.logit_bias.push_back(read_bias(text));
          },
          "Added to a token's logit, -100 to 100; can be repeated")
      ->allow_extra_args(false)
      ->type_name("ID=X")
      ->group(kGroup);
  command
      .add_option("--min-tokens", options.min_tokens,
                  "Minimum number of tokens before anything but --max-tokens ends an answer")
      ->capture_default_str()
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->type_name("N")
      ->group(kGroup);
  command
      .add_option("--stop-token-id", options.stop_token_ids,
                  "Token that ends an answer; can be repeated")
      ->allow_extra_args(false)
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->type_name("ID")
      ->group(kGroup);
  command
      .add_option("--bad-word", options.bad_words, "Word that no answer contains; can be repeated")
      ->allow_extra_args(false)
      ->type_name("TEXT")
      ->group(kGroup);
}

/// Empty for what the engine chooses.
std::string unless_auto(const std::string& text) { return text == kAuto ? "" : text; }

std::string read_device(const std::string& text) {
  HEDDLE_CHECK(kWithCuda || !text.starts_with("cuda"), "--device ", text,
               ": this program has no CUDA code; build it where nvcc is installed, with "
               "HEDDLE_GPU_PROGRAMS=ON (docs/platforms.md)");
  return unless_auto(text);
}

void add_engine_options(CLI::App& command, EngineOptions& engine) {
  constexpr const char* kGroup = "Engine";
  const auto add_size = [&command](const std::string& option, int64_t& bytes,
                                   const std::string& what) {
    const auto read = [option, &bytes](const std::string& text) {
      bytes = read_memory(option, text);
    };
    command.add_option_function<std::string>(option, read, what)
        ->default_str(kAuto)
        ->type_name("SIZE")
        ->group(kGroup);
  };
  command
      .add_option_function<std::string>(
          "--device", [&engine](const std::string& text) { engine.device = read_device(text); },
          "Where the model runs: cpu, cuda or cuda:1; auto: a GPU if one is found")
      ->default_str(kAuto)
      ->type_name("DEVICE")
      ->group(kGroup);
  command.add_option("-t,--threads", engine.num_threads, "Threads; 0: one per processor")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024))
      ->group(kGroup);
  command
      .add_option("--max-context", engine.max_context,
                  "Maximum number of tokens in a row, prompt and answer; 0: the model's own limit")
      ->capture_default_str()
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->group(kGroup);
  command.add_option("--page-size", engine.page_size, "Tokens per page of the KV cache")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096))
      ->group(kGroup);
  command
      .add_option("--prefill-chunk", engine.prefill_chunk,
                  "Maximum number of prompt tokens per step; 0: 512, on a GPU 2048")
      ->capture_default_str()
      ->check(CLI::Range(0, 65536))
      ->group(kGroup);
  add_size("--kv-memory", engine.kv_memory,
           "Memory for the KV cache, such as 8G; auto: half of the free memory. Rows wait while it "
           "is in use");
  command
      .add_option_function<std::string>(
          "--kv-type", [&engine](const std::string& text) { engine.kv_type = unless_auto(text); },
          "Type of the KV cache: f32 (on the CPU), or f16 or bf16, which take half the memory and "
          "round; auto: f32, on a GPU the type of the activations")
      ->default_str(kAuto)
      ->type_name("TYPE")
      ->group(kGroup);
  add_size("--adapter-memory", engine.adapter_memory,
           "Memory for all adapters, such as 1G; auto: with --adapters a quarter of the free "
           "memory, otherwise no limit. Those of --adapters make room for one another");
  add_size("--adapter-host-memory", engine.adapter_host_memory,
           "On a GPU: host memory for copies of adapters from --adapters, from which they are "
           "loaded onto the GPU; auto: a quarter of the free memory");
  command
      .add_option("--max-batch-adapters", engine.max_batch_adapters,
                  "Maximum number of adapters that rows which run at once may use; 0: no limit")
      ->capture_default_str()
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->group(kGroup);
  add_size("--max-batch-adapter-bytes", engine.max_batch_adapter_bytes,
           "Maximum size of these adapters' weights, such as 64M; auto: no limit");
}

void add_input_options(CLI::App& command, GenerateOptions& options) {
  constexpr const char* kGroup = "Input";
  CLI::Option* prompts = command
                             .add_option("PROMPT", options.prompts,
                                         "Prompts; a single - reads them from standard input")
                             ->group(kGroup);
  command
      .add_option("--prompts", options.prompts_path,
                  "File with a JSON object or a prompt on each line; - reads standard input as "
                  "lines arrive")
      ->type_name("FILE")
      ->excludes(prompts)
      ->group(kGroup);
  const std::map<std::string, LineFormat> formats = {
      {kAuto, LineFormat::kAuto}, {"jsonl", LineFormat::kJson}, {"text", LineFormat::kText}};
  command
      .add_option("--input", options.input,
                  "Format of the lines: jsonl, a JSON object each; text, a prompt each; auto: "
                  "jsonl if the file name says so or the first line begins with {, otherwise text")
      ->transform(CLI::CheckedTransformer(formats).description(""))
      ->default_str(kAuto)
      ->type_name("FORMAT")
      ->group(kGroup);
  command.add_flag("--raw", options.raw, "Takes prompts as plain text, without the chat template")
      ->group(kGroup);
  command
      .add_flag("--keep-going", options.keep_going,
                "Answers invalid rows of a file with their error, and runs the others")
      ->group(kGroup);
}

void add_output_options(CLI::App& command, GenerateOptions& options) {
  constexpr const char* kGroup = "Output";
  command
      .add_flag("--json", options.json, "One JSON object per row, written when the row is finished")
      ->group(kGroup);
  command.add_flag("--ordered", options.ordered, "With --json: rows in the order of the input")
      ->group(kGroup);
  command
      .add_option(
          "--hold", options.hold,
          "Maximum number of finished rows that wait for an earlier one; then no row is admitted")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, std::numeric_limits<int64_t>::max()))
      ->type_name("N")
      ->group(kGroup);
  command
      .add_option("--resume", options.resume_path,
                  "Appends JSON answers to this file and skips the rows that it already answers")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_flag("--logprobs", options.logprobs, "With --json: log-probabilities of the tokens")
      ->group(kGroup);
  command
      .add_option("--top-logprobs", options.answer.top_logprobs,
                  "With --json: this many of the most likely tokens at each position, up to 100")
      ->capture_default_str()
      ->check(CLI::Range(0, 100))
      ->type_name("N")
      ->group(kGroup);
  command
      .add_flag("--prompt-logprobs", options.answer.prompt_logprobs,
                "With --json: log-probabilities of the prompt's tokens")
      ->group(kGroup);
  command
      .add_option("--n", options.answer.n,
                  "Answers per prompt, 1 to 128; answer i draws with the row's seed + i")
      ->capture_default_str()
      ->check(CLI::Range(1, 128))
      ->type_name("N")
      ->group(kGroup);
  command.add_option("--stats", options.stats_path, "Writes times and counts to this file")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_flag("-q,--quiet", options.quiet, "No progress, statistics or notes")->group(kGroup);
}

void add_generate(CLI::App& app, GenerateOptions& options) {
  CLI::App* command = app.add_subcommand("generate", "Answers prompts, each with its own adapter");
  add_input_options(*command, options);
  add_model_options(*command, options.model);
  command
      ->add_option("--max-batch", options.model.engine.max_batch,
                   "Maximum number of rows that run at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096))
      ->group("Engine");
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
  constexpr const char* kGroup = "Conversation";
  command
      ->add_flag_callback(
          "--no-history", [&options] { options.history = false; },
          "Does not keep the lines that are typed for later runs")
      ->group(kGroup);
  command
      ->add_flag("--timings", options.timings,
                 "Shows tokens and seconds after each answer, on standard error")
      ->group(kGroup);
  command->footer("heddle chat --adapter sql=examples/adapters/sql");
}

void add_inspect(CLI::App& app, std::string& path) {
  CLI::App* command = app.add_subcommand("inspect", "Shows what a model or an adapter contains");
  command->add_option("PATH", path, "GGUF file, or folder of a model or an adapter")->required();
  command->footer("heddle inspect examples/adapters/sql");
}

/// Options whose value names something refuse an empty one: it is a variable of a shell that was
/// not set, and would be as if the option was not given.
void refuse_empty_values(CLI::App& command) {
  constexpr std::array<std::string_view, 12> kNaming = {"NAME",    "FILE",   "DIR",    "NAME=DIR",
                                                        "TYPE",    "FROM",   "DEVICE", "SIZE",
                                                        "ADDRESS", "ORIGIN", "ID=X",   "N"};
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

void add_model_options(CLI::App& command, ModelOptions& options) {
  constexpr const char* kGroup = "Model";
  command
      .add_option("-m,--model", options.engine.model_path,
                  "GGUF file, folder of a Hugging Face model, or its name in the local cache; "
                  "without it $HEDDLE_MODEL, then the default model in the cache")
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option_function<std::vector<std::string>>(
          "--adapter",
          [&options](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) add_adapters(options.adapters, text);
          },
          "PEFT adapter to load, and its name; can be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME=DIR")
      ->group(kGroup);
  command
      .add_option("--adapters", options.engine.adapter_dir,
                  "Folder of adapters; each is loaded when a request first names its folder")
      ->type_name("DIR")
      ->group(kGroup);
  command
      .add_option("--generation-config", options.engine.generation_config,
                  "Source of temperature, top-k, top-p, min-p, repetition penalty and max-tokens "
                  "where they are not given: auto, the model's generation_config.json or GGUF "
                  "file; none; or the path of such a file or its folder")
      ->default_str(kAuto)
      ->type_name("FROM")
      ->group(kGroup);
  command
      .add_flag("--strict", options.strict,
                "Makes errors of warnings about the model and its adapters: an adapter made for "
                "another model, settings that heddle does not know or do")
      ->group(kGroup);
  command
      .add_option("--weights", options.engine.weights,
                  "Packs f32, f16 and bf16 matrices on load: q8_0, q5_1, q5_0, q4_1, q4_0, f16 or "
                  "bf16")
      ->type_name("TYPE")
      ->group(kGroup);
  add_engine_options(command, options.engine);
}

void add_answer_options(CLI::App& command, AnswerOptions& options) {
  constexpr const char* kGroup = "Answers";
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  GenerationDefaults& given = options.given;  // else the model's files say it
  command.add_option("--use", options.use, "Adapter to use; base: the model without one")
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_option("--system", options.system, "System message at the start of each conversation")
      ->type_name("TEXT")
      ->group(kGroup);
  command
      .add_option("--max-tokens", given.max_tokens,
                  "Maximum number of tokens in an answer; 0: only the prompt's log-probabilities")
      ->default_str("256")
      ->check(CLI::Range(int64_t{0}, kMax))
      ->type_name("N")
      ->group(kGroup);
  command
      .add_option("--temperature", given.temperature,
                  "Sampling temperature; 0: always the most likely token")
      ->default_str("0")
      ->check(number_in(0.0f, 1e6f))
      ->type_name("X")
      ->group(kGroup);
  command.add_option("--top-k", given.top_k, "Samples from the K most likely tokens; 0: off")
      ->default_str("0")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->type_name("K")
      ->group(kGroup);
  command
      .add_option("--top-p", given.top_p,
                  "Samples from the most likely tokens that have this probability together; 1: off")
      ->default_str("1")
      ->check(number_in(std::numeric_limits<float>::min(), 1.0f))
      ->type_name("P")
      ->group(kGroup);
  command
      .add_option("--min-p", given.min_p,
                  "Minimum probability of a token, as a share of the most likely token's; 0: off")
      ->default_str("0")
      ->check(number_in(0.0f, 1.0f))
      ->type_name("P")
      ->group(kGroup);
  command.add_option("--stop", options.stop, "Ends the answer before this text; can be repeated")
      ->allow_extra_args(false)
      ->type_name("TEXT")
      ->group(kGroup);
  add_penalty_options(command, options);
  command
      .add_option("--seed", options.sampling.seed,
                  "Row i draws with this number + i unless it has a seed of its own")
      ->capture_default_str()
      ->type_name("N")
      ->group(kGroup);
}

void declare_commands(CLI::App& app, CommandLine& line) {
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", kVersion, "Shows the version");
  add_generate(app, line.generate);
  add_chat(app, line.chat);
  add_serve(app, line.serve);
  add_inspect(app, line.inspected);
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
