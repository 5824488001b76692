// The texts of `heddle help TOPIC` and of the man page. Defaults that an option has stand with the
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
      {text("A prompts file (--prompts FILE) holds one JSON object a line. Empty lines are "
            "skipped."),
       code(R"({"prompt": "Opposites: hot, big, fast", "adapter": "opposite"})"),
       code(R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9})"),
       text("A row has either prompt or messages. All other fields may be left out, and one that "
            "is null counts as left out."),
       term("prompt", "One message of a user, in the model's chat template; with --raw plain text"),
       term("messages",
            "A conversation: an array of objects with role and content, which is text or an array "
            "of parts of type text; also name, tool_calls, tool_call_id and reasoning_content"),
       term("tools", "An array of objects for the chat template, which tells the model of them"),
       term("documents", "As tools, for templates that know documents"),
       term("chat_template_kwargs", "Further variables of the chat template, by name"),
       term("add_generation_prompt",
            "Whether the text ends where the model's answer begins; left out: true"),
       term("adapter",
            "A name given with --adapter, or base for the model without one; left out: "
            "the adapter of --use, else base"),
       term("adapters",
            "Instead of adapter: an array of objects with name and scale, left out: 1. All act "
            "together, each times its scale; also one with another scale than 1"),
       term("each_adapter",
            "Instead of adapter: an array of names, null for the model without an adapter, or "
            "arrays as in adapters. The row is answered with each"),
       term("model",
            "Instead of adapter: an adapter's name, or base, or the name of the model's file "
            "for the model without one"),
       term("max_tokens", "Tokens of the answer, at most; left out: --max-tokens"),
       term("temperature", "0: the most likely token; left out: --temperature"),
       term("top_k", "Draws from the K most likely tokens, 0: off; left out: --top-k"),
       term("top_p", "Draws from the tokens that hold this mass, 1: off; left out: --top-p"),
       term("min_p", "Least share of the best token's mass, 0: off; left out: --min-p"),
       term("seed", "Fixes the draws of the row; left out: --seed plus the row's index"),
       term("stop",
            "A string or an array of strings: the text ends before the first of them; left "
            "out: --stop"),
       term("repetition_penalty",
            "Divides the logits above 0 of tokens in prompt and answer, multiplies the others, "
            "1: off; left out: --repetition-penalty"),
       term("frequency_penalty",
            "Taken from a token's logit each time that it is in the answer, -2 to 2, 0: off; left "
            "out: --frequency-penalty"),
       term("presence_penalty",
            "Taken from the logits of tokens in the answer, -2 to 2, 0: off; left out: "
            "--presence-penalty"),
       term("logit_bias",
            "An object of token ids and numbers, -100 to 100, which are added to their logits; "
            "left out: --logit-bias"),
       term("min_tokens",
            "Tokens of the answer before anything but max_tokens ends it; left out: --min-tokens"),
       term("stop_token_ids", "An array of tokens that end the answer; left out: --stop-token-id"),
       term("bad_words", "An array of words that the answer does not have; left out: --bad-word"),
       term("top_logprobs",
            "How many of the most likely tokens the answer lists at each place, up to 100; left "
            "out: --top-logprobs"),
       term("prompt_logprobs",
            "Whether the prompt's tokens get log-probabilities, as with max_tokens 0; left out: "
            "--prompt-logprobs"),
       term(
           "n",
           "How many answers the row has, 1 to 128: an array `choices`; answer i draws with seed + "
           "i; left out: --n"),
       term("id", "Any value; the answer repeats it, and --resume finds the row by it"),
       term("custom_id", "As id, under the name that batch files of servers have"),
       term("metadata", "Any value; the answer repeats it"),
       text("A field of another name, or one that is given twice, is an error that names the line "
            "and, where one is spelt much like it, the field that is known. Of a "
            "regular file every line, every adapter's name and every prompt's length is checked "
            "before the first token: a wrong row means exit code 2 and no output. With "
            "--keep-going wrong rows are answered with their error, the others run, and the exit "
            "code is 1. The rows of a pipe are checked one by one, as they come: a wrong one is "
            "answered with its error, and the others go on.")}};
}

Topic answers() {
  return {
      "answers",
      "Fields of an answer in JSON (--json)",
      "ANSWERS IN JSON",
      {text("With --json each row is answered by one JSON object on a line of its own, written "
            "when the row is finished. With --ordered the lines have the order of the input; up to "
            "--hold finished rows then wait for an earlier one."),
       term("index", "Which row of the input it is, from 0"),
       term("id", "As the row has it; null where the row has none"),
       term("custom_id", "As the row has it; absent where the row has none"),
       term("metadata", "As the row has it; absent where the row has none"),
       term("adapter", "The adapter's name, null for the base model and where there are several"),
       term("adapters", "As the row has them; absent where the row has none"),
       term("each_adapter",
            "Of a row that has it, in its order: objects with adapter, adapters, text, token_ids, "
            "prompt_tokens, completion_tokens, finish_reason, error and logprobs, which then "
            "stand nowhere else but error: the first one"),
       term("text",
            "The answer without the end token and what a stop string cut off; bytes that "
            "are no UTF-8 are U+FFFD"),
       term("token_ids", "Its tokens, without the end token"),
       term("prompt_tokens", "Number of tokens of the prompt"),
       term("completion_tokens", "Number of token_ids"),
       term("finish_reason",
            "stop (end token or stop string), length (max_tokens or the end of "
            "the context) or error"),
       term("error", "One sentence, null where there is none"),
       term("hash",
            "Of the row, its adapter and the options that change the answer: by it "
            "--resume knows a row again"),
       term(
           "logprobs",
           "With --logprobs: the natural logarithm of the probability of each of "
           "token_ids; the decimal form reads back to the same bits; -9999.0 where the probability "
           "is 0 or the logits are no numbers"),
       text("Without --json the text of the rows is printed in the order of the input.")}};
}

Topic models() {
  return {"models",
          "Where the model is looked for",
          "MODEL",
          {text("The model is a GGUF file, a folder that transformers saved, or a name such as "
                "Qwen/Qwen3-0.6B that the local Hugging Face cache has. It is, from any working "
                "directory,"),
           term("1.", "that of --model, else"),
           term("2.", "that which the environment variable HEDDLE_MODEL names, else"),
           term("3.",
                "the default model in the folder heddle/models of the cache, where "
                "tools/fetch_model of the source tree puts it. The cache is $XDG_CACHE_HOME, or "
                "~/.cache where that is not set."),
           text("What a file holds, and what of it heddle does not run, is told by"),
           code("heddle inspect FILE")}};
}

Topic adapters() {
  return {
      "adapters",
      "Which adapter a prompt uses",
      "ADAPTERS",
      {text("--adapter NAME=DIR loads the LoRA adapter in folder DIR, as PEFT writes it "
            "(adapter_config.json and adapter_model.safetensors), and gives it a name. It may be "
            "given many times; rows with different adapters run in one batch. The name base stands "
            "for the model without an adapter."),
       text("A prompt on the command line uses an adapter: the only one where one is given. Where "
            "several are given, --use NAME says which. --use base is the model without one."),
       code("heddle generate --adapter sql=examples/adapters/sql \"SQL: count cars\""),
       text("A row of a prompts file names its adapter itself, or several that act together "
            "(heddle help rows)."),
       text("An adapter's configuration names the model that it was made for. Where that is "
            "another one there is a warning, with --strict an error. So it is with settings of a "
            "model that heddle does not know.")}};
}

Topic exit_codes() {
  return {"exit-codes",
          "What the exit code says",
          "EXIT STATUS",
          {term("0", "All rows were answered."),
           term("1",
                "Rows failed (--keep-going, pipes): they have their error in their place, and the "
                "others are answered. Or answers could not be written."),
           term("2",
                "The input is wrong: options, files or rows. One sentence on standard error "
                "says what and where; nothing was written to standard output."),
           term("130", "SIGINT (Ctrl-C) ended the run."), term("143", "SIGTERM ended the run."),
           text("After a signal the rows that are finished are written, then the statistics.")}};
}

Topic resume() {
  return {
      "resume",
      "How --resume goes on with a file of answers",
      "RESUMING A RUN",
      {text(
           "--resume FILE appends JSON answers to FILE, which need not be there yet, and skips the "
           "rows that FILE answers already. So the command that was interrupted is repeated as it "
           "was:"),
       code("heddle generate --prompts rows.jsonl --resume answers.jsonl"),
       text(
           "An answer belongs to the row with the same id, or to the row with the same index where "
           "rows have no id. Its hash must be that of the row, its adapter and the options. A row "
           "that differs is run again and its new answer stands behind the old one; so does a row "
           "whose answer was an error or is a torn last line, which is cut off.")}};
}

Topic pipes() {
  return {
      "pipes",
      "Rows that come from another program",
      "PIPES",
      {text(
           "--prompts - reads rows from standard input as they come, and so do a single - in place "
           "of prompts and --prompts /dev/stdin. Each row is checked when it is read; a wrong one "
           "is answered with its error. With --json an answer is written as soon as its row is "
           "finished, so that programs can be joined:"),
       code("head -2 examples/demo.jsonl | heddle generate --json \\"),
       code("  --adapter iso-date=examples/adapters/iso-date \\"),
       code("  --adapter cron=examples/adapters/cron -"),
       text("Answers go to standard output; progress, statistics and notes to standard error, and "
            "--quiet leaves those out.")}};
}

Topic environment() {
  return {"environment",
          "Environment variables",
          "ENVIRONMENT",
          {term("HEDDLE_MODEL", "The model file where --model is not given"),
           term("XDG_CACHE_HOME",
                "The folder of caches, which holds the default model; ~/.cache where "
                "it is not set"),
           term("NO_COLOR",
                "Where it is set and not empty, terminals get neither colour nor bold "
                "text; files and pipes never do")}};
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
                "Times and counts as one JSON object; it appears when the run "
                "ends, whole or not at all")}};
}

}  // namespace

std::vector<Topic> topics() {
  return {rows(),   answers(), models(),      adapters(), exit_codes(),
          resume(), pipes(),   environment(), files()};
}

}  // namespace heddle::app
