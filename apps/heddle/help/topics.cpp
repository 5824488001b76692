// The texts of `heddle help TOPIC` and of the man page. Defaults of an option are printed with the
// option alone.
#include "help/topics.h"

namespace heddle::app {
namespace {

Block text(std::string words) { return {Block::Kind::kText, "", std::move(words)}; }
Block code(std::string line) { return {Block::Kind::kCode, "", std::move(line)}; }
Block term(std::string name, std::string words) {
  return {Block::Kind::kTerm, std::move(name), std::move(words)};
}

Topic rows() {
  return {
      "rows",
      "Fields of a row of a prompts file",
      "ROWS OF A PROMPTS FILE",
      {text("A prompts file (--prompts FILE) has a JSON object on each line; empty lines are "
            "skipped. A file whose first line does not begin with { has a prompt on each line "
            "(heddle help pipes)."),
       code(R"({"prompt": "Opposites: hot, big, fast", "adapter": "opposite"})"),
       code(R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9})"),
       text("A row has either prompt or messages. All other fields are optional, and one that is "
            "null counts as not given."),
       term("prompt", "One message of a user, in the model's chat template; with --raw plain text"),
       term("messages",
            "A conversation: an array of objects with role and content, which is text or an array "
            "of parts of the type text; also name, tool_calls, tool_call_id and reasoning_content"),
       term("tools", "An array of objects that the chat template presents to the model"),
       term("documents", "Like tools, for templates that take documents"),
       term("chat_template_kwargs", "Additional variables for the chat template, by name"),
       term("add_generation_prompt",
            "Whether the text ends where the model's answer begins; default: true"),
       term("adapter",
            "A name given with --adapter, or base for the model without one; default: the adapter "
            "of --use, else base"),
       term("adapters",
            "Instead of adapter: an array of objects with name and scale (default: 1). They all "
            "act together, each multiplied by its scale; a single one may have a scale, too"),
       term("each_adapter",
            "Instead of adapter: an array of names, null for the model without an adapter, or "
            "arrays as in adapters. The row is answered with each"),
       term("model",
            "Instead of adapter: an adapter's name; base or the name of the model's file is the "
            "model without one"),
       term("max_tokens", "Maximum number of tokens in the answer; default: --max-tokens"),
       term("temperature", "0: always the most likely token; default: --temperature"),
       term("top_k", "Samples from the K most likely tokens, 0: off; default: --top-k"),
       term("top_p",
            "Samples from the most likely tokens that have this probability together, 1: off; "
            "default: --top-p"),
       term("min_p",
            "Minimum probability of a token, as a share of the most likely token's, 0: off; "
            "default: --min-p"),
       term("seed", "Fixes what the row draws; default: --seed plus the row's index"),
       term("stop",
            "A string or an array of strings: the text ends before the first of them; default: "
            "--stop"),
       term("repetition_penalty",
            "Divides positive logits of tokens in prompt or answer, multiplies negative ones, 1: "
            "off; default: --repetition-penalty"),
       term("frequency_penalty",
            "Subtracted from a token's logit each time that it is in the answer, -2 to 2, 0: off; "
            "default: --frequency-penalty"),
       term("presence_penalty",
            "Subtracted from the logits of tokens in the answer, -2 to 2, 0: off; default: "
            "--presence-penalty"),
       term("logit_bias",
            "An object of token ids and numbers, -100 to 100, which are added to their logits; "
            "default: --logit-bias"),
       term("min_tokens",
            "Minimum number of tokens before anything but max_tokens ends the answer; default: "
            "--min-tokens"),
       term("stop_token_ids", "An array of tokens that end the answer; default: --stop-token-id"),
       term("bad_words", "An array of words that the answer does not contain; default: --bad-word"),
       term("top_logprobs",
            "How many of the most likely tokens the answer lists at each position, up to 100; "
            "default: --top-logprobs"),
       term("prompt_logprobs",
            "Whether the prompt's tokens get log-probabilities, as with max_tokens 0; default: "
            "--prompt-logprobs"),
       term("cache_salt",
            "The row takes from the prefix cache only what rows with the same text here left "
            "there; not empty"),
       term("n",
            "How many answers the row has, 1 to 128, in an array choices; answer i draws with seed "
            "+ i; default: --n"),
       term("id", "Any value; the answer repeats it, and --resume finds the row by it"),
       term("custom_id", "Like id, under the name that batch files of servers use"),
       term("metadata", "Any value; the answer repeats it"),
       text(
           "An unknown field, or one that is given twice, is an error that names the line and, "
           "where "
           "one is spelt much like it, the field that is known. In a regular file every line, "
           "every "
           "adapter's name and every prompt's length is checked before the first token: an invalid "
           "row means exit code 2 and no output. With --keep-going invalid rows are answered with "
           "their error, the others run, and the exit code is 1. The rows of a pipe are checked "
           "one "
           "by one, as they arrive: an invalid one is answered with its error, and the others go "
           "on.")}};
}

Topic answers() {
  return {
      "answers",
      "Fields of an answer in JSON (--json)",
      "ANSWERS IN JSON",
      {text("With --json each row is answered with one JSON object on its own line, written "
            "when the row is finished. With --ordered the lines are in the order of the input; "
            "up to --hold finished rows then wait for an earlier one."),
       term("index", "Number of the row in the input, from 0"),
       term("id", "The id of the row, or null"),
       term("custom_id", "That of the row; absent if it has none"),
       term("metadata", "That of the row; absent if it has none"),
       term("adapter", "The adapter's name; null for the base model, or if there are several"),
       term("adapters", "Those of the row; absent if it has none"),
       term("each_adapter",
            "For a row with each_adapter, in its order: objects with adapter, adapters, text, "
            "token_ids, prompt_tokens, cached_tokens, completion_tokens, finish_reason, error "
            "and logprobs. "
            "Outside of them the answer then has only error, the first one"),
       term("text",
            "The answer without the end token and without what a stop string cut off; bytes "
            "that are not UTF-8 are U+FFFD"),
       term("token_ids", "Its tokens, without the end token"),
       term("prompt_tokens", "Number of tokens of the prompt"),
       term("cached_tokens",
            "Number of these that the prefix cache had; the answer does not depend on it"),
       term("completion_tokens", "Number of token_ids"),
       term("adapter_digest",
            "The digest of the weights of its adapter, of several joined by '+'; absent for the "
            "base model"),
       term("finish_reason",
            "stop (end token or stop string), length (max_tokens or the end of the context) or "
            "error"),
       term("error", "One sentence, or null"),
       term("hash",
            "Hash of the row, its adapter and the options that change the answer, by which "
            "--resume recognizes a row"),
       term("logprobs",
            "With --logprobs: the natural logarithm of the probability of each of token_ids; "
            "the decimal form reads back to the same bits; -9999.0 if the probability is 0 or "
            "the logits are not numbers"),
       text("Without --json the text of the rows is printed in the order of the input.")}};
}

Topic models() {
  return {
      "models",
      "Where heddle looks for the model",
      "MODEL",
      {text("The model is a GGUF file, a folder that transformers saved, or a name in the local "
            "Hugging Face cache, such as Qwen/Qwen3-0.6B. From any working directory it is"),
       term("1.", "the one given with --model, else"),
       term("2.", "the one named by the environment variable HEDDLE_MODEL, else"),
       term("3.",
            "the default model in the folder heddle/models of the cache, where `heddle demo` of a "
            "wheel and tools/fetch_model of the source tree put it. The cache is $XDG_CACHE_HOME, "
            "or ~/.cache if that is not "
            "set."),
       text("This shows what a file contains, and what in it heddle does not run:"),
       code("heddle inspect FILE")}};
}

Topic adapters() {
  return {"adapters",
          "Which adapter a prompt uses",
          "ADAPTERS",
          {text("--adapter NAME=DIR loads the LoRA adapter in folder DIR, as PEFT writes it "
                "(adapter_config.json and adapter_model.safetensors), and gives it a name. It can "
                "be repeated; rows with different adapters run in one batch. The name base means "
                "the model without an adapter."),
           text("A prompt on the command line uses the adapter that is given. If several are "
                "given, --use NAME says which one; --use base is the model without one."),
           code("heddle generate --adapter sql=examples/adapters/sql \"SQL: count cars\""),
           text("A row of a prompts file names its own adapter, or several that act together "
                "(heddle help rows)."),
           text("An adapter's configuration names the model that it was made for. If that is "
                "another model, there is a warning, or an error with --strict. The same goes for "
                "settings of a model that heddle does not know.")}};
}

Topic exit_codes() {
  return {"exit-codes",
          "What the exit codes mean",
          "EXIT STATUS",
          {term("0", "All rows were answered."),
           term("1",
                "Rows failed (--keep-going, pipes): they are answered with their error, and the "
                "others normally. Or answers could not be written."),
           term("2",
                "The input is wrong: options, files or rows. One sentence on standard error says "
                "what is wrong and where; nothing was written to standard output."),
           term("130", "SIGINT (Ctrl-C) ended the run."), term("143", "SIGTERM ended the run."),
           text("After a signal the rows that are finished are written, then the statistics.")}};
}

Topic resume() {
  return {
      "resume",
      "How --resume continues a file of answers",
      "RESUMING A RUN",
      {text("--resume FILE appends JSON answers to FILE, which need not exist yet, and skips the "
            "rows that FILE already answers. So an interrupted command is simply repeated:"),
       code("heddle generate --prompts rows.jsonl --resume answers.jsonl"),
       text("An answer belongs to the row with the same id, or, if rows have no id, to the row "
            "with the same index. Its hash must be that of the row, its adapter and the options. A "
            "row that differs is run again, and its new answer follows the old one. So is a row "
            "whose answer was an error, or an incomplete last line, which is cut off.")}};
}

Topic pipes() {
  return {
      "pipes",
      "Prompts and rows from another program",
      "PIPES",
      {text("--prompts - reads standard input as lines arrive, and so do a single - in place of "
            "prompts and --prompts /dev/stdin. If the first line that is not empty begins with {, "
            "lines are rows (heddle help rows), otherwise each is a prompt like those on the "
            "command line; --input jsonl or --input text says it. Each row is checked when it is "
            "read, and an invalid one is answered with its error. With --json an answer is written "
            "as soon as its row is finished, so that programs can be connected:"),
       code("head -2 examples/demo.jsonl | heddle generate --json \\"),
       code("  --adapter iso-date=examples/adapters/iso-date \\"),
       code("  --adapter cron=examples/adapters/cron -"),
       text("Answers go to standard output; progress, statistics and notes to standard error, and "
            "--quiet omits the latter.")}};
}

Topic environment() {
  return {"environment",
          "Environment variables",
          "ENVIRONMENT",
          {term("HEDDLE_MODEL", "The model if --model is not given"),
           term("XDG_CACHE_HOME",
                "The folder of caches, which holds the default model; ~/.cache if it is not set"),
           term("NO_COLOR",
                "If it is set and not empty, terminals get neither colour nor bold text; files and "
                "pipes never do")}};
}

Topic files() {
  return {"files",
          "Files that are read and written",
          "FILES",
          {term("~/.cache/heddle/models/", "The default model (heddle help models)"),
           term("DIR/adapter_config.json", "Settings of the adapter of --adapter NAME=DIR"),
           term("DIR/adapter_model.safetensors", "Its weights"),
           term("FILE of --resume", "Answers in JSON: read, then appended to"),
           term("FILE of --stats",
                "Times and counts as one JSON object; it is written when the run ends, as a whole "
                "or not at all")}};
}

}  // namespace

std::vector<Topic> topics() {
  return {rows(),   answers(), models(),      adapters(), exit_codes(),
          resume(), pipes(),   environment(), files()};
}

}  // namespace heddle::app
