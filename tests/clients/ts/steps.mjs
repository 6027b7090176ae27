// What the scripts of this folder share, as ../steps.py has it: a step is one thing a client does, reported on a line of its own.

export let fails = 0;

export async function step(name, action) {
  const timeout = new Promise((_, reject) => setTimeout(() => reject(new Error('not done in 10 s')), 10_000).unref());
  try {
    console.log(`OK   ${name}:`, JSON.stringify(await Promise.race([action(), timeout]))?.slice(0, 4000) ?? '');
  } catch (error) {
    fails += 1;
    console.log(`FAIL ${name}:`, error?.code ?? '', String(error?.message ?? error).slice(0, 4000));
  }
}

const choice = field => field.enum?.[0] ?? (field.oneOf ?? field.anyOf)?.[0].const ?? 'x';

// What a user who takes the first choice everywhere puts into a form.
export function filledIn(schema) {
  const first = field =>
    field.type === 'boolean' ? true
    : field.type === 'integer' || field.type === 'number' ? 1
    : field.type === 'array' ? [choice(field.items)]
    : choice(field);
  return Object.fromEntries(Object.entries(schema.properties).map(([name, field]) => [name, first(field)]));
}

export function finish() {
  console.log(`done: fails=${fails}`);
  process.exit(fails ? 1 : 0);
}
