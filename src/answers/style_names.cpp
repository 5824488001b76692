#include <algorithm>
#include <array>
#include <utility>

#include "answers/answer_style.h"

namespace heddle::answers {
namespace {

struct FormatName {
  std::string_view name;
  ToolFormat format;
};

// The first of each format is heddle's own name for it, the others are those of vLLM and SGLang.
constexpr std::array kFormatNames = {
    FormatName{"hermes", ToolFormat::kHermes},
    FormatName{"qwen", ToolFormat::kHermes},
    FormatName{"qwen25", ToolFormat::kHermes},
    FormatName{"granite4", ToolFormat::kHermes},
    FormatName{"qwen3_coder", ToolFormat::kQwen3Coder},
    FormatName{"qwen3_xml", ToolFormat::kQwen3Coder},
    FormatName{"llama3_json", ToolFormat::kLlama3Json},
    FormatName{"llama3", ToolFormat::kLlama3Json},
    FormatName{"llama4_json", ToolFormat::kLlama3Json},
    FormatName{"pythonic", ToolFormat::kPythonic},
    FormatName{"llama4_pythonic", ToolFormat::kPythonic},
    FormatName{"mistral", ToolFormat::kMistral},
    FormatName{"mistral_v11", ToolFormat::kMistralV11},
    FormatName{"granite", ToolFormat::kGranite},
    FormatName{"phi4", ToolFormat::kPhi4},
    FormatName{"phi4_mini_json", ToolFormat::kPhi4},
    FormatName{"gemma", ToolFormat::kGemma},
    FormatName{"smollm3", ToolFormat::kSmolLm3},
};

struct MarksName {
  std::string_view name, begin, end, text_begin, text_end;
};

constexpr std::array kMarksNames = {
    MarksName{"think", "<think>", "</think>", "", ""},
    MarksName{"qwen3", "<think>", "</think>", "", ""},
    MarksName{"qwen3-thinking", "<think>", "</think>", "", ""},
    MarksName{"deepseek_r1", "<think>", "</think>", "", ""},
    MarksName{"deepseek-r1", "<think>", "</think>", "", ""},
    MarksName{"smollm3", "<think>", "</think>", "", ""},
    MarksName{"mistral", "[THINK]", "[/THINK]", "", ""},
    MarksName{"granite", "Here is my thought process:", "Here is my response:", "", ""},
    MarksName{"granite_response", "<think>", "</think>", "<response>", "</response>"},
};

template <class Table>
constexpr auto names_of(const Table& table) {
  std::array<std::string_view, std::tuple_size_v<Table>> names{};
  std::transform(table.begin(), table.end(), names.begin(),
                 [](const auto& entry) { return entry.name; });
  return names;
}

constexpr auto kNamesOfFormats = names_of(kFormatNames);
constexpr auto kNamesOfMarks = names_of(kMarksNames);

}  // namespace

std::optional<ToolFormat> tool_format_named(std::string_view name) {
  for (const FormatName& entry : kFormatNames) {
    if (entry.name == name) return entry.format;
  }
  return std::nullopt;
}

std::span<const std::string_view> tool_format_names() { return kNamesOfFormats; }

std::string_view name(ToolFormat format) {
  for (const FormatName& entry : kFormatNames) {
    if (entry.format == format) return entry.name;
  }
  return "none";
}

std::optional<ReasoningStyle> reasoning_named(std::string_view name) {
  for (const MarksName& entry : kMarksNames) {
    if (entry.name != name) continue;
    return ReasoningStyle{.begin = std::string(entry.begin),
                          .end = std::string(entry.end),
                          .text_begin = std::string(entry.text_begin),
                          .text_end = std::string(entry.text_end)};
  }
  return std::nullopt;
}

std::span<const std::string_view> reasoning_names() { return kNamesOfMarks; }

}  // namespace heddle::answers
