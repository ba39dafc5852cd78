"""`./ladder dashboard`: one page of everything that results/ holds, for a person to read."""
