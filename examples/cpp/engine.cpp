// A model with several adapters: rows of one batch, each with its own adapter, printed as they
// come.
//
//   engine MODEL.gguf [NAME=FOLDER]...      one prompt for the base model, the same one for each
//     adapter
#include "heddle/engine/engine.h"

#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

namespace {

/// What a row has answered so far, under the name that is shown for it.
struct Row {
  std::string name, text{};
};

heddle::Request request_for(const std::string& adapter, const std::string& prompt) {
  heddle::Request request;
  request.messages = {
      {.role = "user", .content = prompt}};  // goes through the model's chat template
  request.adapter = adapter;                 // empty: the base model
  request.max_tokens = 32;
  return request;
}

/// Runs all rows to their ends. Returns how many failed.
int answer(heddle::Engine& engine, const std::vector<heddle::Request>& requests) {
  std::map<heddle::RequestId, Row> rows;
  for (const heddle::Request& request : requests) {
    rows[engine.submit(request)].name = request.adapter.empty() ? "base" : request.adapter;
  }
  int num_failed = 0;
  while (engine.num_unfinished() > 0) {
    for (const heddle::Event& event : engine.step()) {  // one pass of the model over all rows
      Row& row = rows[event.request];
      row.text += event.text;
      std::printf("%s: +%zu bytes\n", row.name.c_str(), event.text.size());
      if (!event.completion) continue;
      const bool failed = event.completion->finish_reason == heddle::FinishReason::kError;
      num_failed += failed ? 1 : 0;
      std::printf("%s (%s): %s\n", row.name.c_str(), name(event.completion->finish_reason),
                  failed ? event.completion->error.c_str() : row.text.c_str());
    }
  }
  return num_failed;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: engine MODEL.gguf [NAME=FOLDER]...\n");
    return 2;
  }
  heddle::EngineOptions options;
  options.model_path = argv[1];
  options.max_context = 512;
  heddle::Engine engine(options);

  const std::string prompt = "Opposites: hot, big, fast";
  std::vector<heddle::Request> requests{request_for("", prompt)};
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t split = argument.find('=');
    if (split == std::string::npos) {
      std::fprintf(stderr, "%s: expected NAME=FOLDER\n", argv[i]);
      return 2;
    }
    const std::string name = argument.substr(0, split);
    engine.add_adapter(name, argument.substr(split + 1));
    requests.push_back(request_for(name, prompt));
  }
  std::printf("%s, %d rows\n", engine.model().name.c_str(), static_cast<int>(requests.size()));
  return answer(engine, requests) == 0 ? 0 : 1;
} catch (const std::exception& error) {  // heddle::Error: one sentence with file and field
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
