#include "answers/call_syntax.h"

#include <array>

namespace heddle::answers {
namespace {

constexpr CallMark kTagMark = {"<tool_call>", kObjects | kXml, "</tool_call>"};

constexpr std::array kTagMarks = {kTagMark};
constexpr std::array kXmlMarks = {
    kTagMark,
    // Models leave out the first line now and then.
    CallMark{"<function=", kXml, "</tool_call>", "<function="},
};
constexpr std::array kLlamaMarks = {
    CallMark{"<|python_tag|>", kObjects},
    CallMark{"{", kObjects, "", "{", true},
};
constexpr std::array kPythonMarks = {
    CallMark{"<|python_start|>", kPythonList, "<|python_end|>"},
    CallMark{"[", kPythonList, "", "[", true},
};
constexpr std::array kMistralMarks = {CallMark{"[TOOL_CALLS]", kObjects | kNamed}};
constexpr std::array kGraniteMarks = {CallMark{"<|tool_call|>", kObjects}, kTagMark};
constexpr std::array kPhiMarks = {
    CallMark{"functools[", kObjects, "", "["},
    CallMark{"<|tool_call|>", kObjects, "<|/tool_call|>"},
};
constexpr std::array kGemmaMarks = {CallMark{"```tool_code", kPythonCode, "```"}};

constexpr CallForm kHermesForm = {"<tool_call>\n", "\n</tool_call>", kObjects, false, "\n",
                                  "arguments",     "<tool_call>"};
constexpr CallForm kSmolForm = {"<tool_call>", "</tool_call>", kObjects,     false,
                                "\n",          "arguments",    "<tool_call>"};
constexpr CallForm kXmlForm = {"<tool_call>\n", "\n</tool_call>", kXml, false, "\n", "",
                               "<tool_call>"};
constexpr CallForm kLlamaForm = {"", "", kObjects, false, "; ", "parameters"};
constexpr CallForm kPythonForm = {"[", "]", kPythonList, true, ", "};
constexpr CallForm kMistralForm = {"[TOOL_CALLS][", "]",           kObjects, true, ", ",
                                   "arguments",     "[TOOL_CALLS]"};
constexpr CallForm kMistralV11Form = {"[TOOL_CALLS]", "", kNamed};
constexpr CallForm kGraniteForm = {"<|tool_call|>[", "]", kObjects, true, ", ", "arguments",
                                   "<|tool_call|>"};
constexpr CallForm kPhiForm = {"functools[", "]", kObjects, true, ", "};
constexpr CallForm kGemmaForm = {"```tool_code\n", "\n```", kPythonCode, true, "\n", "",
                                 "```tool_code"};

}  // namespace

std::span<const CallMark> call_marks(ToolFormat format) {
  switch (format) {
    case ToolFormat::kNone: return {};
    case ToolFormat::kHermes:
    case ToolFormat::kSmolLm3: return kTagMarks;
    case ToolFormat::kQwen3Coder: return kXmlMarks;
    case ToolFormat::kLlama3Json: return kLlamaMarks;
    case ToolFormat::kPythonic: return kPythonMarks;
    case ToolFormat::kMistral:
    case ToolFormat::kMistralV11: return kMistralMarks;
    case ToolFormat::kGranite: return kGraniteMarks;
    case ToolFormat::kPhi4: return kPhiMarks;
    case ToolFormat::kGemma: return kGemmaMarks;
  }
  return {};
}

const CallForm& call_form(ToolFormat format) {
  switch (format) {
    case ToolFormat::kQwen3Coder: return kXmlForm;
    case ToolFormat::kLlama3Json: return kLlamaForm;
    case ToolFormat::kPythonic: return kPythonForm;
    case ToolFormat::kMistral: return kMistralForm;
    case ToolFormat::kMistralV11: return kMistralV11Form;
    case ToolFormat::kGranite: return kGraniteForm;
    case ToolFormat::kPhi4: return kPhiForm;
    case ToolFormat::kGemma: return kGemmaForm;
    case ToolFormat::kSmolLm3: return kSmolForm;
    default: return kHermesForm;
  }
}

}  // namespace heddle::answers
