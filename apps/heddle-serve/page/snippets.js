// A request as a command and as a program, to be run elsewhere. Keys are never part of them.
import { apiKey } from "./api.js";

const kRoute = "/v1/chat/completions";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function asCurl(body) {
  const lines = [`curl -s ${quoted(location.origin + kRoute)}`, "-H 'Content-Type: application/json'"];
  if (apiKey()) lines.push('-H "Authorization: Bearer $HEDDLE_API_KEY"');
  lines.push(`-d ${quoted(JSON.stringify(body, null, 2))}`);
  return lines.join(" \\\n  ");
}

/** A value as Python writes it. */
function literal(value, indent) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const isList = Array.isArray(value);
  const parts = isList ? value.map((each) => literal(each, inner))
                       : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each, inner)}`);
  const [open, close] = isList ? "[]" : "{}";
  const short = `${open}${parts.join(", ")}${close}`;
  return short.length < 80 && !short.includes("\n") ? short : `${open}\n${parts.map((p) => inner + p).join(",\n")},\n${indent}${close}`;
}

export function asPython({ each_adapter: each, ...body }) {
  const fields = Object.entries(body).map(([name, value]) => `    ${name}=${literal(value, "    ")},`);
  if (each) fields.push(`    extra_body={"each_adapter": ${literal(each, "    ")}},`);
  return [
    "import os",
    "",
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${JSON.stringify(`${location.origin}/v1`)}, api_key=os.environ.get("HEDDLE_API_KEY", "none"))`,
    "answer = client.chat.completions.create(",
    ...fields,
    ")",
    "for choice in answer.choices:",
    each ? '    print(f"{choice.adapter or answer.model}: {choice.message.content}")' : "    print(choice.message.content)",
    "",
  ].join("\n");
}
