// All that is declared is documented: in help, the man page and the completions of three shells.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "byte_size.h"
#include "command_line.h"
#include "help/completion.h"
#include "help/help_text.h"
#include "help/man_page.h"
#include "help/topics.h"

namespace heddle::app {
namespace {

class Help : public testing::Test {
 protected:
  Help() : app_("heddle") {
    declare_commands(app_, line_);
    program_ = describe(app_);
    for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; })) {
      declared_.push_back(command);
    }
  }

  CLI::App app_;
  CommandLine line_;
  ProgramText program_;
  std::vector<const CLI::App*> declared_;
};

/// The lines of the completion script for `shell` that are about `command`.
std::string part_of(const std::string& script, const std::string& command) {
  std::istringstream lines(script);
  std::string part;
  bool inside = false;  // of zsh's or bash's case
  for (std::string line; std::getline(lines, line);) {
    const bool begins = line.starts_with("    " + command + ")");
    inside = begins || (inside && !line.ends_with(";;"));
    const bool named = line.find("'" + command + " ") != std::string::npos ||
                       line.find("__heddle_command " + command + "'") != std::string::npos;
    if (inside || named || line.starts_with("    " + command + ":")) part += line + "\n";
  }
  return part;
}

bool has_word(const std::string& text, const std::string& word) {
  const auto is_part = [](char letter) { return std::isalnum(letter) != 0 || letter == '-'; };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) {
      return true;
    }
  }
  return false;
}

std::string without(std::string text, char letter) {
  std::erase(text, letter);
  return text;
}

TEST_F(Help, DescribesEveryOptionThatIsDeclared) {
  ASSERT_GE(declared_.size(), 5u);
  ASSERT_EQ(program_.commands.size(), declared_.size());
  for (size_t i = 0; i < declared_.size(); ++i) {
    const CommandText& command = program_.commands[i];
    EXPECT_EQ(command.name, declared_[i]->get_name());
    EXPECT_EQ(command.options.size(), declared_[i]->get_options().size()) << command.name;
    EXPECT_FALSE(command.text.empty()) << command.name;
    EXPECT_FALSE(command.examples.empty()) << command.name;
    for (const OptionText& option : command.options) {
      EXPECT_FALSE(option.text.empty()) << command.name << " " << option.value;
    }
  }
}

TEST_F(Help, ShowsEveryOptionInHelpManPageAndCompletions) {
  const std::string man = without(man_page(program_), '\\');
  const std::string bash = bash_completion(program_), zsh = zsh_completion(program_);
  const std::string fish = fish_completion(program_);
  for (const CLI::App* command : declared_) {
    const std::string name = command->get_name();
    const CommandText* text = find_command(program_, name);
    ASSERT_NE(text, nullptr) << name;
    const std::string help = command_help(*text, Style::kPlain);
    const size_t begin = man.find(".SS heddle " + name + "\n");
    ASSERT_NE(begin, std::string::npos) << name;
    const std::string section = man.substr(begin, man.find("\n.S", begin + 1) - begin);
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& letter : option->get_snames()) {
        EXPECT_TRUE(has_word(help, "-" + letter)) << name << " -" << letter;
        EXPECT_NE(section.find("fB-" + letter + "fR"), std::string::npos) << name << " -" << letter;
        EXPECT_TRUE(has_word(part_of(bash, name), "-" + letter)) << name << " -" << letter;
        EXPECT_NE(part_of(zsh, name).find(")-" + letter), std::string::npos) << name << letter;
        EXPECT_TRUE(has_word(part_of(fish, name), "-s " + letter)) << name << " -" << letter;
      }
      for (const std::string& word : option->get_lnames()) {
        EXPECT_TRUE(has_word(help, "--" + word)) << name << " --" << word;
        EXPECT_NE(section.find("fB--" + word + "fR"), std::string::npos) << name << " --" << word;
        EXPECT_TRUE(has_word(part_of(bash, name), "--" + word)) << name << " --" << word;
        EXPECT_TRUE(has_word(part_of(zsh, name), "--" + word)) << name << " --" << word;
        EXPECT_TRUE(has_word(part_of(fish, name), "-l " + word)) << name << " --" << word;
      }
    }
  }
}

TEST_F(Help, ListsEveryCommandAndTopic) {
  const std::string help = program_help(program_, Style::kPlain), man = man_page(program_);
  for (const std::string& word : help_words(program_)) {
    EXPECT_NE(help.find("\n  " + word + " "), std::string::npos) << word;
    EXPECT_FALSE(help_about(program_, word, Style::kPlain).empty());
  }
  for (const Topic& topic : topics()) {
    EXPECT_NE(man.find("\n.SH " + topic.section + "\n"), std::string::npos) << topic.name;
    EXPECT_EQ(find_command(program_, topic.name), nullptr) << topic.name << " is both";
  }
}

TEST_F(Help, FitsEightyColumns) {
  std::vector<std::string> words = help_words(program_);
  words.emplace_back();  // the program
  for (const std::string& word : words) {
    std::istringstream lines(help_about(program_, word, Style::kPlain));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << word << ": " << line;
      EXPECT_FALSE(line.ends_with(' ')) << word << ": " << line;
    }
  }
}

TEST_F(Help, ShowsTheDefaultsOfTheStructs) {
  const GenerateOptions fresh;
  const EngineOptions& engine = fresh.model.engine;
  const AnswerOptions& answer = fresh.answer;
  const ServeOptions serve;
  const RequestLimits& limits = serve.limits;
  const std::map<std::string, double> defaults = {
      {"--threads", engine.num_threads},
      {"--max-context", static_cast<double>(engine.max_context)},
      {"--page-size", static_cast<double>(engine.page_size)},
      {"--prefill-chunk", static_cast<double>(engine.prefill_chunk)},
      {"--kv-memory", static_cast<double>(engine.kv_memory)},
      {"--kv-disk-memory", static_cast<double>(engine.kv_disk_memory)},
      {"--adapter-memory", static_cast<double>(engine.adapter_memory)},
      {"--adapter-host-memory", static_cast<double>(engine.adapter_host_memory)},
      {"--max-batch", static_cast<double>(engine.max_batch)},
      {"--max-batch-adapters", static_cast<double>(engine.max_batch_adapters)},
      {"--max-batch-adapter-bytes", static_cast<double>(engine.max_batch_adapter_bytes)},
      {"--max-tokens", static_cast<double>(answer.max_tokens)},
      {"--temperature", answer.sampling.temperature},
      {"--top-k", answer.sampling.top_k},
      {"--top-p", answer.sampling.top_p},
      {"--min-p", answer.sampling.min_p},
      {"--repetition-penalty", answer.sampling.repetition_penalty},
      {"--frequency-penalty", answer.sampling.frequency_penalty},
      {"--presence-penalty", answer.sampling.presence_penalty},
      {"--top-logprobs", answer.top_logprobs},
      {"--n", answer.n},
      {"--dimensions", 0},  // as many as the model has
      {"--draft-tokens", fresh.model.engine.speculation.max_drafts},
      {"--draft-memory", static_cast<double>(fresh.model.engine.speculation.memory)},
      {"--min-tokens", static_cast<double>(answer.min_tokens)},
      {"--seed", static_cast<double>(answer.sampling.seed)},
      {"--hold", static_cast<double>(fresh.hold)},
      {"--port", serve.port},
      {"--max-connections", serve.max_connections},
      {"--stream-timeout", serve.stream_timeout},
      {"--drain-timeout", serve.drain_timeout},
      {"--max-messages", static_cast<double>(limits.messages)},
      {"--max-prompts", static_cast<double>(limits.prompts)},
      {"--max-n", static_cast<double>(limits.n)},
      {"--max-stop-strings", static_cast<double>(limits.stop_strings)},
      {"--max-bad-words", static_cast<double>(limits.bad_words)},
      {"--max-logit-bias", static_cast<double>(limits.logit_bias)},
      {"--max-top-logprobs", static_cast<double>(limits.top_logprobs)},
      {"--default-max-tokens", static_cast<double>(kDefaultMaxTokens)},
      {"--max-waiting", static_cast<double>(serve.max_waiting)},
      {"--stream-buffer", static_cast<double>(serve.stream_buffer)},
      {"--max-buffered", static_cast<double>(serve.max_buffered)},
      {"--max-body", static_cast<double>(limits.body_bytes)},
      {"--max-adapter-body", static_cast<double>(limits.adapter_bytes)},
      {"--response-store", static_cast<double>(serve.response_store)},
      {"--response-store-size", static_cast<double>(serve.response_store_bytes)},
      {"--adapter-cache-size", static_cast<double>(serve.fetch.cache_bytes)},
      {"--adapter-refresh", serve.fetch.refresh},
      {"--download-wait", serve.fetch.wait},
  };
  const std::map<std::string, std::string> texts = {
      {"--kv-host-memory", "auto"}, {"--kv-type", "auto"},           {"--admit", "now"},
      {"--device", "auto"},         {"--generation-config", "auto"}, {"--host", serve.host},
      {"--input", "auto"},          {"--tool-strict-level", "auto"}, {"--revision", "main"},
      {"--fairness", "off"},        {"--activations", "auto"},       {"--speculate", "off"},
      {"--draft-ngram", "2:4"}};
  std::map<std::string, int> seen;
  for (const CommandText& command : program_.commands) {
    for (const OptionText& option : command.options) {
      if (option.default_value.empty()) continue;
      const std::string& name = option.names.back();
      if (texts.contains(name)) {
        EXPECT_EQ(option.default_value, texts.at(name));
        continue;
      }
      ASSERT_TRUE(defaults.contains(name)) << name << " has a default: add it to this table";
      const bool is_auto = option.default_value == "auto";                        // 0 in the struct
      const std::optional<int64_t> size = parse_byte_size(option.default_value);  // "8M", or 16
      const double value =
          size || is_auto ? static_cast<double>(size.value_or(0)) : std::stod(option.default_value);
      EXPECT_NEAR(value, defaults.at(name), 1e-6) << name;
      EXPECT_NE(help_about(program_, command.name, Style::kPlain)
                    .find("[default: " + option.default_value + "]"),
                std::string::npos)
          << name;
      ++seen[name];
    }
  }
  EXPECT_EQ(seen.size(), defaults.size());
}

/// The words of a line as a shell cuts them; knows double quotes and nothing else.
std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char letter : line) {
    if (letter == '"') {
      quoted = !quoted;
    } else if (letter == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += letter;
    }
  }
  return words;
}

/// The call of heddle in a line for a shell, without what pipes and brackets join to it.
std::string call_in(const std::string& example) {
  const size_t begin = example.find("heddle ");
  if (begin == std::string::npos) return "";
  std::string call = example.substr(begin, example.find_first_of("|)", begin) - begin);
  while (call.ends_with(' ')) call.pop_back();
  return call;
}

/// The examples of commands and topics; a line that ends with a backslash goes on in the next.
std::vector<std::string> all_examples(const ProgramText& program) {
  std::vector<std::string> lines = program.program.examples, examples;
  for (const CommandText& command : program.commands) {
    lines.insert(lines.end(), command.examples.begin(), command.examples.end());
  }
  for (const Topic& topic : topics()) {
    for (const Block& block : topic.blocks) {
      if (block.kind == Block::Kind::kCode) lines.push_back(block.text);
    }
  }
  bool goes_on = false;
  for (std::string line : lines) {
    line.erase(0, line.find_first_not_of(' '));
    if (goes_on) {
      examples.back() += line;
    } else {
      examples.push_back(line);
    }
    goes_on = examples.back().ends_with('\\');
    if (goes_on) examples.back().pop_back();
  }
  return examples;
}

TEST_F(Help, GivesExamplesThatParseAndFilesThatExist) {
  size_t num_parsed = 0;
  for (const std::string& example : all_examples(program_)) {
    if (example.starts_with('{')) continue;  // a row
    std::vector<std::string> words = shell_words(call_in(example));
    ASSERT_EQ(words.front(), "heddle") << example;
    for (const std::string& word : words) {
      const size_t at = word.find("examples/");
      if (at == std::string::npos) continue;
      const auto path = std::filesystem::path(HEDDLE_SOURCE_DIR) / word.substr(at);
      EXPECT_TRUE(std::filesystem::exists(path)) << example;
    }
    words.erase(words.begin());
    std::ranges::reverse(words);  // as CLI11 takes them
    CLI::App app;
    CommandLine line;
    declare_commands(app, line);
    EXPECT_NO_THROW(app.parse(words)) << example;
    EXPECT_FALSE(app.get_subcommands().empty()) << example;
    ++num_parsed;
  }
  EXPECT_GE(num_parsed, 15u);
}

TEST_F(Help, NamesTheNearestWord) {
  const auto message = [this](const std::string& word) -> std::string {
    try {
      static_cast<void>(help_about(program_, word, Style::kPlain));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  for (const auto& [word, nearest] : std::map<std::string, std::string>{{"row", "rows"},
                                                                        {"genrate", "generate"},
                                                                        {"exit-code", "exit-codes"},
                                                                        {"pips", "pipes"}}) {
    EXPECT_NE(message(word).find("help " + word), std::string::npos) << message(word);
    EXPECT_NE(message(word).find("nearest is " + nearest + ";"), std::string::npos)
        << message(word);
  }
}

TEST(Page, WrapsAtWordsAndKeepsLongOnes) {
  EXPECT_EQ(wrap_words("a bc  def ghijklmnop q", 6),
            (std::vector<std::string>{"a bc", "def", "ghijklmnop", "q"}));
  EXPECT_EQ(wrap_words("", 6), std::vector<std::string>{});
  EXPECT_EQ(wrap_words(std::string("ab c") + kNoBreak + "d", 5),
            (std::vector<std::string>{"ab", "c d"}));
}

TEST(Page, HasBoldHeadingsOnlyWhereAskedFor) {
  Page bold(Style::kBold), plain(Style::kPlain);
  bold.heading("Input");
  plain.heading("Input");
  EXPECT_EQ(bold.text(), "\033[1mInput\033[0m\n");
  EXPECT_EQ(plain.text(), "Input\n");
}

}  // namespace
}  // namespace heddle::app
