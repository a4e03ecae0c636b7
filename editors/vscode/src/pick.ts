/** The list from which a user picks what is done to a selection. */
import { type Disposable, type QuickPickItem, window } from "vscode";
import type { Abilities, Asked } from "./protocol";

type Choice = Pick<Asked, "preset" | "instruction">;
type Item = QuickPickItem & { readonly choice: Choice };

/** Returns a preset, or what the user typed where the checkpoint follows instructions; undefined for none. */
export function pickEdit({ presets, instructions }: Abilities): Promise<Choice | undefined> {
  const list = window.createQuickPick<Item>();
  const items = presets.map(({ id, title }): Item => ({ label: title, choice: { preset: id } }));
  list.title = "Midspan: Edit Selection";
  list.placeholder = instructions
    ? "Say what to change, or choose"
    : "Choose what to do (this checkpoint follows no written instructions)";
  list.items = items;
  const hooks: Disposable[] = [list];
  if (instructions)
    hooks.push(
      list.onDidChangeValue((value) => {
        const instruction = value.trim();
        list.items = instruction ? [{ label: instruction, alwaysShow: true, choice: { instruction } }, ...items] : items;
      }),
    );
  return new Promise((resolve) => {
    hooks.push(
      list.onDidAccept(() => {
        resolve(list.selectedItems[0]?.choice);
        list.hide();
      }),
      list.onDidHide(() => {
        resolve(undefined);
        for (const hook of hooks) hook.dispose();
      }),
    );
    list.show();
  });
}
